package sparsefw

import (
	"fmt"

	"google.golang.org/grpc/codes"
)

const (
	mostEmptyPages = 1000 // in a row
	mostPages      = 10_000
	mostBytes      = 1 << 30
)

// pageWalk follows the pages of one list. A server may give short and empty pages, so only their number,
// the bytes of all, and a token that does not move tell that it never comes to an end.
type pageWalk struct {
	method       string
	token        string
	pages, empty int
	bytes        int64
}

// take is called after every page, with its size.
func (w *pageWalk) take(entries, size int, next string) error {
	if next == "" {
		return nil
	}
	w.pages++
	w.bytes += int64(size)
	w.empty++
	if entries > 0 {
		w.empty = 0
	}
	var why string
	switch {
	case next == w.token:
		why = "a page has the token of the page before it"
	case w.empty >= mostEmptyPages:
		why = fmt.Sprintf("%d pages in a row are empty", w.empty)
	case w.pages >= mostPages:
		why = fmt.Sprintf("it is longer than %d pages", mostPages)
	case w.bytes > mostBytes:
		why = fmt.Sprintf("it is longer than %d bytes", mostBytes)
	}
	w.token = next
	if why == "" {
		return nil
	}
	return refuse(codes.Internal, "PROTOCOL", "%s: the server's list must come to an end; %s", w.method, why)
}
