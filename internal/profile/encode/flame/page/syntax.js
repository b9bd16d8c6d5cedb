// ---- Colors of source code: comments, strings, numbers and the words that most languages
// share. They need no grammar, only a line and whether it begins in a comment.

const KEYWORDS = new Set((
  'as async auto await bool break case catch chan char class const constexpr continue def default defer del delete do ' +
  'double elif else enum except export extends extern final finally float fn for from func function go goto if impl ' +
  'implements import in inline instanceof int interface is lambda let long loop map match mod mut namespace new None nil ' +
  'not null nullptr operator or override package pass pub private protected public raise range ref register return select ' +
  'self short signed sizeof static static_cast struct super switch template this throw trait try type typedef typename ' +
  'union unsafe unsigned use using var virtual void volatile where while with yield true false True False and').split(' '));
const MAX_COLORED = 2000; // characters of a line

// A Syntax colors the lines of a file, in order.
class Syntax {
  constructor(file) {
    const hash = /\.(py|sh|rb|pl|mk|cmake|yaml|toml)$/i.test(file) ? '#.*' : '(?!)';
    this.pattern = new RegExp(
      `(?<comment>//.*|/\\*.*?(?:\\*/|$)|${hash})|(?<string>"(?:[^"\\\\]|\\\\.)*"|'(?:[^'\\\\]|\\\\.)'|\`[^\`]*\`)` +
      '|(?<number>\\b\\d[\\w.]*)|(?<word>[A-Za-z_]\\w*)', 'g');
    this.isComment = false; // the line begins in a comment
  }

  // parts returns a line as [class name, text]; the class name of other text is empty.
  parts(line) {
    if (line.length > MAX_COLORED) return [['', line]];
    const parts = [];
    let at = 0;
    if (this.isComment) {
      const end = line.indexOf('*/');
      if (end < 0) return [['comment', line]];
      at = end + 2;
      this.isComment = false;
      parts.push(['comment', line.slice(0, at)]);
    }
    this.pattern.lastIndex = at;
    for (const match of line.matchAll(this.pattern)) {
      const { comment, string, number, word } = match.groups;
      const name = comment !== undefined ? 'comment' : string !== undefined ? 'string' : number !== undefined ? 'number'
        : KEYWORDS.has(word) ? 'keyword' : '';
      if (!name) continue;
      if (match.index > at) parts.push(['', line.slice(at, match.index)]);
      parts.push([name, match[0]]);
      at = match.index + match[0].length;
      if (comment?.startsWith('/*') && !comment.slice(2).endsWith('*/')) this.isComment = true;
    }
    if (at < line.length) parts.push(['', line.slice(at)]);
    return parts;
  }
}

