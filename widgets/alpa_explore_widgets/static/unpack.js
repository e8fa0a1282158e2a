// What Python sends gzipped, as text.
function unpacked(bytes) {
  // Not through a Blob: reading one involves another process of the browser, which takes longer than everything else.
  const gunzip = new DecompressionStream("gzip");
  const writer = gunzip.writable.getWriter();
  writer.write(bytes);
  writer.close();
  return new Response(gunzip.readable).text();
}

function sameBytes(a, b) {
  const [left, right] = [a, b].map((bytes) => new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  return left.length === right.length && left.every((byte, i) => byte === right[i]);
}
