package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// As large as the format allows.
const maxHeader = 100_000_000

// As many dims as the other clients take.
const maxRank = 64

const metadataName = "__metadata__"

var elementBits = map[string]uint64{
	"F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16,
	"I16": 16, "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
	"F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}

type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// parse takes the header apart token by token: json.Unmarshal would take the last of two equal names, and the
// name of a field in any case. The rules are those of core/src/io.
func (f *File) parse(text []byte, bytes int64) error {
	if len(text) == 0 || text[0] != '{' || !utf8.Valid(text) || !json.Valid(text) {
		return errors.New("the header must be a JSON object in UTF-8 and begin with {")
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	err := object(decoder, func(name string) error {
		if name == metadataName {
			return f.readMetadata(decoder)
		}
		var e entry
		err := e.read(decoder)
		if err == nil {
			err = e.check(bytes)
		}
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		f.tensors[name] = e
		f.names = append(f.names, name)
		return nil
	})
	if err != nil {
		return err
	}
	return f.layOut(bytes)
}

// layOut orders the names by place and checks that the tensors fill the file, each byte once.
func (f *File) layOut(bytes int64) error {
	sort.Slice(f.names, func(i, j int) bool {
		a, b := f.tensors[f.names[i]].Offsets, f.tensors[f.names[j]].Offsets
		// An empty tensor lies before the one that begins at the same byte.
		if a != b {
			return a[0] < b[0] || (a[0] == b[0] && a[1] < b[1])
		}
		return f.names[i] < f.names[j]
	})
	end := int64(0)
	for _, name := range f.names {
		e := f.tensors[name]
		if e.Offsets[0] != end {
			return fmt.Errorf("tensor %q: data_offsets must not overlap and leave no hole; got %v where the "+
				"tensors before end at %d", name, e.Offsets, end)
		}
		end = e.Offsets[1]
	}
	if end != bytes {
		return fmt.Errorf("the tensors must fill the file; they end at byte %d of %d", end, bytes)
	}
	return nil
}

func (f *File) readMetadata(decoder *json.Decoder) error {
	f.Metadata = map[string]string{}
	err := object(decoder, func(key string) (err error) {
		f.Metadata[key], err = text(decoder)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s must be texts: %w", metadataName, err)
	}
	return nil
}

func (e *entry) read(decoder *json.Decoder) error {
	fields := 0
	err := object(decoder, func(field string) (err error) {
		fields++
		switch field {
		case "dtype":
			e.DType, err = text(decoder)
		case "shape":
			e.Shape, err = counts(decoder, maxRank)
		case "data_offsets":
			var offsets []int64
			if offsets, err = counts(decoder, 2); err == nil && len(offsets) < 2 {
				err = fmt.Errorf("must be two numbers; got %d", len(offsets))
			}
			copy(e.Offsets[:], offsets)
		default:
			err = errors.New("fields must be dtype, shape and data_offsets")
		}
		if err != nil {
			return fmt.Errorf("%q: %w", field, err)
		}
		return nil
	})
	if err == nil && fields < 3 {
		return errors.New("dtype, shape and data_offsets must be there")
	}
	return err
}

func (e entry) check(bytes int64) error {
	size, ok := e.size()
	if !ok {
		return fmt.Errorf("dtype must be known, and shape %v of %q whole bytes below 2^63", e.Shape, e.DType)
	}
	if e.Offsets[0] < 0 || e.Offsets[1] > bytes || e.Offsets[1]-e.Offsets[0] != size {
		return fmt.Errorf("data_offsets %v must be %d bytes of %d", e.Offsets, size, bytes)
	}
	return nil
}

// size in bytes; false where there can be no such tensor.
func (e entry) size() (int64, bool) {
	total, known := elementBits[e.DType]
	if !known || len(e.Shape) > maxRank {
		return 0, false
	}
	empty := false
	for _, dim := range e.Shape {
		if dim < 0 {
			return 0, false
		}
		empty = empty || dim == 0
	}
	// First: a product with a zero in it is zero, wherever the zero stands.
	if empty {
		return 0, true
	}
	for _, dim := range e.Shape {
		var over uint64
		if over, total = bits.Mul64(total, uint64(dim)); over != 0 {
			return 0, false
		}
	}
	return int64(total / 8), total%8 == 0 && total/8 <= math.MaxInt64
}

// object reads one whose keys are there once.
func object(decoder *json.Decoder, value func(key string) error) error {
	token, err := decoder.Token()
	if err == nil && token != json.Delim('{') {
		err = fmt.Errorf("must be an object; got %v", token)
	}
	seen := map[string]bool{}
	for err == nil && decoder.More() {
		if token, err = decoder.Token(); err != nil {
			break
		}
		key, _ := token.(string) // the text is valid JSON
		if seen[key] {
			return fmt.Errorf("%q must be there once; got it twice", key)
		}
		seen[key] = true
		err = value(key)
	}
	if err == nil {
		_, err = decoder.Token() // the }
	}
	return err
}

func text(decoder *json.Decoder) (string, error) {
	token, err := decoder.Token()
	if err != nil {
		return "", err
	}
	value, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("must be a text; got %v", token)
	}
	return value, nil
}

// counts reads a list of at most so many whole numbers.
func counts(decoder *json.Decoder, most int) ([]int64, error) {
	token, err := decoder.Token()
	if err == nil && token != json.Delim('[') {
		err = fmt.Errorf("must be a list; got %v", token)
	}
	list := []int64{}
	for err == nil && decoder.More() {
		if len(list) == most {
			return nil, fmt.Errorf("must be at most %d numbers; got more", most)
		}
		if token, err = decoder.Token(); err != nil {
			break
		}
		number, _ := token.(json.Number)
		count, wrong := strconv.ParseUint(number.String(), 10, 63)
		if wrong != nil {
			return nil, fmt.Errorf("must be whole numbers from 0 to 2^63-1; got %v", token)
		}
		list = append(list, int64(count))
	}
	if err == nil {
		_, err = decoder.Token() // the ]
	}
	return list, err
}
