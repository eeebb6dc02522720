package sparsefw

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Printable is text of others on one line, with escapes instead of characters that change how a terminal
// or a reader shows the others: controls (C0, DEL, C1), separators of lines, marks of direction, and bytes
// that are no UTF-8. "\n", "\t", "\r", "\x1b" and "\x9f" for bytes, "\u202e" for characters. Backslashes
// stay as they are, so escaping twice changes nothing.
func Printable(text string) string {
	var printable strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&printable, "\\x%02x", text[0])
		case r == '\n':
			printable.WriteString("\\n")
		case r == '\r':
			printable.WriteString("\\r")
		case r == '\t':
			printable.WriteString("\\t")
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&printable, "\\x%02x", r)
		case r >= 0x80 && r < 0xa0, misleads(r):
			fmt.Fprintf(&printable, "\\u%04x", r)
		default:
			printable.WriteString(text[:size])
		}
		text = text[size:]
	}
	return printable.String()
}

// Marks of direction, which show text in another order than it has, and separators of lines.
func misleads(r rune) bool {
	return r == 0x061c || r == 0x200e || r == 0x200f || (r >= 0x2028 && r <= 0x202e) ||
		(r >= 0x2066 && r <= 0x2069)
}
