package sparsefw

import (
	"bytes"
	"io"
	"testing"
)

func hold(t *testing.T, w *window, offset int64, want string) {
	t.Helper()
	if err := w.moveTo(offset); err != nil {
		t.Fatal(err)
	}
	if got := string(w.from(offset)); got != want {
		t.Errorf("from %d: %q, expected %q", offset, got, want)
	}
}

func TestAWindowMovesForwardAndKeepsWhatIsAskedFor(t *testing.T) {
	w := readerWindow(bytes.NewBufferString("abcdefgh"), 3)
	hold(t, w, 0, "abc")
	hold(t, w, 0, "abc")
	hold(t, w, 2, "cde")
	hold(t, w, 5, "fgh")
	hold(t, w, 8, "")
	if !w.ended {
		t.Error("the source has ended")
	}
	if err := w.moveTo(1); ReasonOf(err) != "CLIENT_ARGUMENT" {
		t.Errorf("bytes that are gone: %v", err)
	}
}

func TestASourceThatCanSeekIsReadAgainFromWhereItBegan(t *testing.T) {
	source := bytes.NewReader([]byte("__abcdefgh"))
	source.Seek(2, io.SeekStart)
	w := readerWindow(source, 3)
	hold(t, w, 0, "abc")
	hold(t, w, 3, "def")
	hold(t, w, 0, "abc")
	hold(t, w, 3, "def")
	hold(t, w, 6, "gh")
	hold(t, w, 0, "abc")
}
