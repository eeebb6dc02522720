// Package safetensors reads and writes files in the safetensors format: a little-endian 64-bit length,
// a JSON header of that length, then the tensors' bytes.
package safetensors

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Tensor is a tensor of a file.
type Tensor struct {
	Name  string
	DType string // "F32", "BF16"
	Shape []int64
	Data  []byte // row-major, little-endian
}

// File is an open file. Its methods may be called by several goroutines.
type File struct {
	Metadata map[string]string
	names    []string
	tensors  map[string]entry
	reader   io.ReaderAt
	start    int64
	closer   io.Closer
}

// Open reads the header of a file and checks all of it.
func Open(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	f, err := New(file, info.Size())
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.closer = file
	return f, nil
}

// New is Open for any source of this size.
func New(reader io.ReaderAt, size int64) (*File, error) {
	var length [8]byte
	if _, err := reader.ReadAt(length[:], 0); err != nil {
		return nil, fmt.Errorf("a safetensors file must begin with 8 bytes of length: %w", err)
	}
	header := binary.LittleEndian.Uint64(length[:])
	if header > maxHeader || int64(header) > size-8 {
		return nil, fmt.Errorf("the header must be at most %d bytes and in the file; got %d", maxHeader, header)
	}
	text := make([]byte, header)
	if _, err := reader.ReadAt(text, 8); err != nil {
		return nil, err
	}
	f := &File{tensors: map[string]entry{}, reader: reader, start: 8 + int64(header)}
	return f, f.parse(text, size-f.start)
}

// Names are in the order of the file.
func (f *File) Names() []string { return append([]string(nil), f.names...) }

// Shape and DType of a tensor without its bytes; false where the file has no such tensor.
func (f *File) Shape(name string) (shape []int64, dtype string, ok bool) {
	e, ok := f.tensors[name]
	return e.Shape, e.DType, ok
}

// Section is a tensor's bytes as a source that can be read again.
func (f *File) Section(name string) (*io.SectionReader, error) {
	e, ok := f.tensors[name]
	if !ok {
		return nil, fmt.Errorf("the file has no tensor %q", name)
	}
	return io.NewSectionReader(f.reader, f.start+e.Offsets[0], e.Offsets[1]-e.Offsets[0]), nil
}

// Read loads a tensor.
func (f *File) Read(name string) (Tensor, error) {
	section, err := f.Section(name)
	if err != nil {
		return Tensor{}, err
	}
	e := f.tensors[name]
	data := make([]byte, section.Size())
	if _, err := io.ReadFull(section, data); err != nil {
		return Tensor{}, fmt.Errorf("tensor %q: %w", name, err)
	}
	return Tensor{name, e.DType, e.Shape, data}, nil
}

// Close ends a file of Open.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// Write makes a file in one step: a reader sees all of it or none. Metadata may be nil. A link stays, and
// the file behind it is replaced.
func Write(path string, tensors []Tensor, metadata map[string]string) error {
	target, err := behindLinks(path)
	if err != nil {
		return err
	}
	file, err := createBeside(target)
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // after the rename there is none
	out := bufio.NewWriterSize(file, 1<<20)
	if err = encode(out, tensors, metadata); err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.Rename(file.Name(), target)
}

const mostLinks = 40 // the kernel follows as many

// behindLinks is the file that a rename takes the place of; an error where that is no regular file, such as
// /dev/null, which the whole machine would lose.
func behindLinks(path string) (string, error) {
	target := path
	for i := 0; i < mostLinks; i++ {
		if folder, err := filepath.EvalSymlinks(dirOf(target)); err == nil &&
			strings.HasPrefix(folder, "/proc/") && filepath.Base(folder) == "fd" {
			return "", fmt.Errorf("%s: must be a regular file to write to; it is an open descriptor", path)
		}
		link, err := os.Readlink(target)
		if err != nil {
			break
		}
		if !filepath.IsAbs(link) {
			link = dirOf(target) + "/" + link
		}
		target = link
	}
	info, err := os.Stat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return target, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: must be a regular file to write to; it is none", path)
	}
	return target, err
}

// createBeside makes a file with the permissions of any new file of this user, which os.CreateTemp does not.
func createBeside(path string) (*os.File, error) {
	for {
		var random [8]byte
		if _, err := rand.Read(random[:]); err != nil {
			return nil, err
		}
		// Not cleaned as text: what ".." means behind a link is for the system to say.
		name := strings.TrimSuffix(dirOf(path), "/") + "/" + fmt.Sprintf(".safetensors-%x", random)
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return file, err
		}
	}
}

func dirOf(path string) string {
	if slash := strings.LastIndexByte(path, '/'); slash >= 0 {
		return path[:slash+1]
	}
	return "."
}

func encode(out io.Writer, tensors []Tensor, metadata map[string]string) error {
	header := map[string]interface{}{}
	if metadata != nil {
		header[metadataName] = metadata
	}
	offset := int64(0)
	for _, tensor := range tensors {
		if tensor.Name == metadataName || !utf8.ValidString(tensor.Name) {
			return fmt.Errorf("the name of a tensor must be UTF-8 and not %s; got %q", metadataName, tensor.Name)
		}
		end := offset + int64(len(tensor.Data))
		shape := tensor.Shape
		if shape == nil {
			shape = []int64{}
		}
		e := entry{tensor.DType, shape, [2]int64{offset, end}}
		if err := e.check(end); err != nil {
			return fmt.Errorf("tensor %q: %w", tensor.Name, err)
		}
		if _, twice := header[tensor.Name]; twice {
			return fmt.Errorf("tensor %q must be there once", tensor.Name)
		}
		header[tensor.Name] = e
		offset = end
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 { // tensors begin on 8 bytes
		text = append(text, ' ')
	}
	if len(text) > maxHeader {
		return fmt.Errorf("the header must be at most %d bytes; got %d", maxHeader, len(text))
	}
	if err := binary.Write(out, binary.LittleEndian, uint64(len(text))); err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	for _, tensor := range tensors {
		if _, err := out.Write(tensor.Data); err != nil {
			return err
		}
	}
	return nil
}
