package sparsefw

import "testing"

func TestTextOfOthersCannotSteerATerminal(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"a \\n ü 中 🙂":               "a \\n ü 中 🙂",
		"\x1b]0;x\a\n\r\t\x7f\x00":  `\x1b]0;x\x07\n\r\t\x7f\x00`,
		"\u009b31m\u202e\u2066":     `\u009b31m\u202e\u2066`,
		"\u061c\u200f\u2028":        `\u061c\u200f\u2028`,
		"\x9b\xff\xc0\x9b\xe4\xb8a": `\x9b\xff\xc0\x9b\xe4\xb8a`,
		"\xed\xa0\x80":              `\xed\xa0\x80`,
		"\ufffd":                    "\ufffd",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
		if got := Printable(want); got != want {
			t.Errorf("twice: %q, not %q", got, want)
		}
	}
	e := &JobError{"jobs/\x1b", &Error{Message: "a\nb", Reason: "\u202e"}}
	if got, want := e.Error(), `jobs/\x1b: OK (\u202e): a\nb`; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}
