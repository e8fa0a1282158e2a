// Grades the answers of a page, as alpa_explore/course/kinds.py and registry.py do; a test gives both the same answers.
const gradeAnswer = (() => {
  "use strict";
  const close = (value, truth, tolerance) =>
    Math.abs(value - truth) <= Math.max(tolerance * Math.max(Math.abs(value), Math.abs(truth)), 1e-12);
  const whole = (pattern) => new RegExp(`^(?:${pattern})$`);
  const unquoted = (text, { quotes }) => text.replace(new RegExp(`^[${quotes}]+|[${quotes}]+$`, "g"), "");
  const sideOf = ({ unit }, value, truth) => {
    if (unit !== "share" || value <= 1) return side(value, truth);
    const [shown, share] = [value, value / 100].map((number) => String(Number(number.toPrecision(4))));
    return `The answer is between 0 and 1; if ${shown} % (${share}) is meant, ${side(value / 100, truth).replace("It", "it")}`;
  };
  const side = (value, truth) => {
    const word = value > truth ? "large" : "small";
    if (value * truth <= 0) return `It is too ${word}.`;
    const ratio = Math.max(value / truth, truth / value);
    if (ratio < 1.1) return `It is a little too ${word}.`;
    return `It is too ${word}, by a factor of about ${Number(ratio.toPrecision(2)).toLocaleString("en")}.`;
  };
  // The value of a text, or why it is refused.
  const numberOf = ({ asks, scales, reading }, text) => {
    const measure = whole(reading.measure).exec(unquoted(text, reading));
    if (!measure) return { refused: `This exercise asks for ${asks}.` };
    let digits = measure[1].replace("−", "-");
    if (whole(reading.either).test(digits)) {
      const [thousands, decimal] = [digits.replace(",", ""), digits.replace(",", ".")];
      return { refused: `${digits} can mean ${thousands} or ${decimal}. Write it without a comma.` };
    }
    if (whole(reading.decimal_comma).test(digits)) digits = digits.replace(",", ".");
    else if (whole(reading.thousands).test(digits)) digits = digits.replaceAll(",", "");
    else if (digits.includes(",")) return { refused: `Where are the commas of ${digits}? This exercise asks for ${asks}.` };
    const scale = scales[measure[2] ?? ""];
    if (scale === undefined) {
      const known = Object.keys(scales).filter(Boolean).join(", ");
      return { refused: `Unknown here: ${measure[2]}. This exercise asks for ${asks}; known are ${known}.` };
    }
    const value = Number(digits) * scale;
    return Number.isFinite(value) ? { value } : { refused: `This exercise asks for ${asks}.` };
  };
  const slipOf = ({ asks, slips, tolerance }, value, truth, far) => {
    const fits = ({ factor }) => close(value, truth * factor, tolerance) && !close(truth, truth * factor, tolerance);
    const known = far ? slips.filter(({ factor }) => factor <= 0.1 || factor >= 10) : slips;
    const slip = truth ? known.find(fits) : undefined;
    return slip ? `An answer in ${slip.name}? This exercise asks for ${asks}.` : "";
  };
  const kinds = {
    number(quiz, text) {
      const { value, refused } = numberOf(quiz, text);
      if (refused) return { refused };
      return {
        same: (other) => close(value, other, quiz.tolerance),
        slip: (meant, far) => slipOf(quiz, value, meant, far),
        side: () => sideOf(quiz, value, quiz.truth),
      };
    },
    choice(quiz, text) {
      if (!text) return { refused: "Choose one first." };
      return { same: (other) => text === other };
    },
    items({ asks, ordered, reading }, text) {
      const inner = text.replace(new RegExp(reading.around, "g"), "");
      const parts = inner.split(new RegExp(reading.between)).filter(Boolean);
      const plain = parts.map((part) => unquoted(part, reading));
      if (!plain.length || !plain.every((part) => whole(reading.item).test(part))) {
        return { refused: `This exercise asks for ${asks}, as numbers such as 1, 2.` };
      }
      const key = (list) => (ordered ? list : [...new Set(list)].sort((a, b) => a - b)).join(" ");
      return { same: (other) => key(plain.map(Number)) === key(other) };
    },
  };
  // [state, words, text, whether the text is HTML].
  return (quiz, text) => {
    const answer = kinds[quiz.kind](quiz, text);
    if (answer.refused) return ["hint", "→ Not marked.", answer.refused];
    if (answer.same(quiz.truth)) return ["right", "✓ Right.", quiz.why, true];
    const mistake = quiz.mistakes.find((known) => answer.same(known.answer));
    if (mistake) return ["wrong", "✗ Not yet.", mistake.reason, true];
    // Twice a mistake is no answer in another unit: only far ones are looked for.
    const far = (known) => answer.slip(known.answer, true);
    const slip = answer.slip && (answer.slip(quiz.truth) || quiz.mistakes.map(far).find(Boolean));
    if (slip) return ["hint", "→ Not marked.", slip];
    return ["wrong", "✗ Not yet.", answer.side?.() || "Look at the hints."];
  };
})();
