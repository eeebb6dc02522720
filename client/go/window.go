package sparsefw

import (
	"errors"
	"io"
	"reflect"
	"unsafe"
)

// window is the part of a source that the server may still ask for: what it does not have on its
// disk yet.
type window struct {
	source io.Reader // nil: all is in `data`
	limit  int
	base   int64 // offset of data[0] in the source
	data   []byte
	ended  bool // the source: nothing follows `data`
}

func wholeWindow(data []byte) *window { return &window{data: data, ended: true} }

func readerWindow(source io.Reader, limit int) *window {
	return &window{source: source, limit: limit}
}

// end is the offset behind the window.
func (w *window) end() int64 { return w.base + int64(len(w.data)) }

// from is what the window has from `offset` on, which lies in it.
func (w *window) from(offset int64) []byte { return w.data[offset-w.base:] }

// moveTo lets go of what is before `offset` and reads on. Errors: those of the source; CLIENT_ARGUMENT
// where the server asks for bytes that are gone and the source is no io.Seeker.
func (w *window) moveTo(offset int64) error {
	if w.source == nil {
		return nil
	}
	if offset < w.base {
		return w.rewind(offset)
	}
	if offset > w.base {
		kept := copy(w.data, w.data[offset-w.base:])
		w.data, w.base = w.data[:kept], offset
	}
	return w.fill()
}

// rewind: a server that has lost an upload asks for its beginning again.
func (w *window) rewind(offset int64) error {
	seeker, ok := w.source.(io.Seeker)
	if !ok {
		return argument("the server has lost an upload, and its source cannot be read again from "+
			"byte %d: give an io.ReadSeeker or the bytes themselves", offset)
	}
	// From where it stands: it may have begun in the middle of a file.
	if _, err := seeker.Seek(offset-w.end(), io.SeekCurrent); err != nil {
		return err
	}
	w.base, w.data, w.ended = offset, w.data[:0], false
	return w.fill()
}

func (w *window) fill() error {
	if w.ended {
		return nil
	}
	for len(w.data) < w.limit {
		if len(w.data) == cap(w.data) { // it grows with what comes
			w.data = append(make([]byte, 0, w.larger()), w.data...)
		}
		end := cap(w.data)
		if end > w.limit {
			end = w.limit
		}
		n, err := w.source.Read(w.data[len(w.data):end])
		w.data = w.data[:len(w.data)+n]
		if errors.Is(err, io.EOF) {
			w.ended = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// larger is the next capacity: at most the limit, which may be as much as an int holds.
func (w *window) larger() int {
	size := 2*cap(w.data) + 1<<20
	if size > w.limit || size < cap(w.data) {
		return w.limit
	}
	return size
}

// bytesOf is the memory of a slice of numbers, without a copy. The wire is little-endian, as every
// machine that Go's gRPC is used on; init checks it.
func bytesOf(slice interface{}, element int) []byte {
	value := reflect.ValueOf(slice)
	if value.Len() == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(value.UnsafePointer()), value.Len()*element)
}

func init() {
	one := uint16(1)
	if *(*byte)(unsafe.Pointer(&one)) != 1 {
		panic("sparsefw: this machine is big-endian, which the client does not support")
	}
}
