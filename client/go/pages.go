package sparsefw

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
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

const page = 1000

// allPages is the entries of all pages, at most limit of them; 0: all.
func allPages[Page interface {
	proto.Message
	GetNextPageToken() string
}, Entry any](ctx context.Context, c *Client, method string, limit int, entries func(Page) []Entry,
	fetch func(ctx context.Context, pageSize int32, token string) (Page, error)) ([]Entry, error) {
	var all []Entry
	walk := pageWalk{method: method}
	for token := ""; ; {
		size := int32(page)
		if left := limit - len(all); limit > 0 && left < page {
			size = int32(left)
		}
		var found Page
		err := c.call(ctx, method, func(ctx context.Context) (err error) {
			found, err = fetch(ctx, size, token)
			return err
		})
		if err != nil {
			return nil, err
		}
		if err := walk.take(len(entries(found)), proto.Size(found), found.GetNextPageToken()); err != nil {
			return nil, err
		}
		all = append(all, entries(found)...)
		token = found.GetNextPageToken()
		if token == "" || (limit > 0 && len(all) >= limit) {
			return all, nil
		}
	}
}
