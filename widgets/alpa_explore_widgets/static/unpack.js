// What Python sends gzipped, as text.
function unpacked(bytes) {
  // Not through a Blob: reading one involves another process of the browser, which takes longer than everything else.
  const gunzip = new DecompressionStream("gzip");
  const writer = gunzip.writable.getWriter();
  writer.write(bytes);
  writer.close();
  return new Response(gunzip.readable).text();
}
