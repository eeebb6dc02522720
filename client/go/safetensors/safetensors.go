// Package safetensors reads and writes files in the safetensors format: a little-endian 64-bit length,
// a JSON header of that length, then the tensors' bytes.
package safetensors

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
)

// As large as the format allows.
const maxHeader = 100 << 20

var elementBytes = map[string]int64{
	"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
	"I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}

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

type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
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

func (f *File) parse(text []byte, bytes int64) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return fmt.Errorf("the header must be JSON: %w", err)
	}
	for name, raw := range fields {
		if name == "__metadata__" {
			if err := json.Unmarshal(raw, &f.Metadata); err != nil {
				return fmt.Errorf("__metadata__ must be texts: %w", err)
			}
			continue
		}
		var e entry
		decoder := json.NewDecoder(strings.NewReader(string(raw)))
		if err := decoder.Decode(&e); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		if err := e.check(bytes); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		f.tensors[name] = e
		f.names = append(f.names, name)
	}
	sort.Slice(f.names, func(i, j int) bool {
		a, b := f.tensors[f.names[i]].Offsets, f.tensors[f.names[j]].Offsets
		return a[0] < b[0] || (a[0] == b[0] && f.names[i] < f.names[j])
	})
	end := int64(0)
	for _, name := range f.names {
		e := f.tensors[name]
		if e.Offsets[0] < end {
			return fmt.Errorf("tensor %q must not overlap another", name)
		}
		end = e.Offsets[1]
	}
	return nil
}

func (e entry) check(bytes int64) error {
	size, known := elementBytes[e.DType]
	if !known {
		return fmt.Errorf("dtype must be known; got %q", e.DType)
	}
	for _, dim := range e.Shape {
		if dim < 0 || (dim > 0 && size > bytes/dim) {
			return fmt.Errorf("shape %v must fit into the file", e.Shape)
		}
		size *= dim
	}
	if e.Offsets[0] < 0 || e.Offsets[1] > bytes || e.Offsets[1]-e.Offsets[0] != size {
		return fmt.Errorf("data_offsets %v must be %d bytes of %d", e.Offsets, size, bytes)
	}
	return nil
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

// Write makes a file in one step: a reader sees all of it or none. Metadata may be nil.
func Write(path string, tensors []Tensor, metadata map[string]string) error {
	file, err := os.CreateTemp(dirOf(path), ".safetensors-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // after the rename there is none
	out := bufio.NewWriterSize(file, 1<<20)
	if err = encode(out, tensors, metadata); err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = file.Chmod(0o644)
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
	return os.Rename(file.Name(), path)
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
		header["__metadata__"] = metadata
	}
	offset := int64(0)
	for _, tensor := range tensors {
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
