package sparsefw

import (
	"bytes"
	"io"
	"math"
	"testing"
	"time"
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

func TestAWindowTakesNoMoreThanItsSourceHas(t *testing.T) {
	w := readerWindow(bytes.NewReader(make([]byte, 100)), math.MaxInt)
	if err := w.moveTo(0); err != nil || len(w.data) != 100 || cap(w.data) > 4<<20 {
		t.Errorf("%v, %d bytes in %d", err, len(w.data), cap(w.data))
	}
}

func TestWaitsAreNeverNegative(t *testing.T) {
	b := &backoff{policy: RetryPolicy{Initial: time.Second, Max: time.Hour, Multiplier: 1e30, GiveUpAfter: time.Minute}}
	b.reset()
	for i := 0; i < 5; i++ {
		if delay, again := b.next(math.MaxInt64); !again || delay < 0 || delay > time.Minute {
			t.Errorf("%d: %v", i, delay)
		}
	}
	b.postpone(-2 * time.Minute)
	if _, again := b.next(0); again {
		t.Error("the time is up")
	}
	b.postpone(3 * time.Minute) // an attempt that took so long
	if _, again := b.next(0); !again {
		t.Error("sending is not waiting")
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
