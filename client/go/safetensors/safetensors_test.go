package safetensors_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/sparsefw/sparsefw/client/go/safetensors"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	tensors := []safetensors.Tensor{
		{Name: "weight", DType: "F32", Shape: []int64{2, 3}, Data: bytes.Repeat([]byte{1, 2, 3, 4}, 6)},
		{Name: "empty", DType: "I8", Shape: []int64{0, 5}, Data: nil},
		{Name: "scalar", DType: "BF16", Shape: []int64{}, Data: []byte{7, 8}},
	}
	if err := safetensors.Write(path, tensors, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if file.Metadata["format"] != "pt" || len(file.Names()) != 3 {
		t.Errorf("%v %v", file.Metadata, file.Names())
	}
	for _, want := range tensors {
		got, err := file.Read(want.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got.DType != want.DType || !reflect.DeepEqual(got.Shape, want.Shape) ||
			!bytes.Equal(got.Data, want.Data) {
			t.Errorf("%v is not %v", got, want)
		}
	}
	if _, err := file.Read("none"); err == nil {
		t.Error("a tensor that is not there")
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 1 {
		t.Errorf("%v", left)
	}
}

func TestTheProjectsFixtureIsRead(t *testing.T) {
	matches, _ := filepath.Glob("../../../tests/fixtures/*/*.safetensors")
	more, _ := filepath.Glob("../../../tests/fixtures/*.safetensors")
	matches = append(matches, more...)
	if len(matches) == 0 {
		t.Skip("no fixture beside this package")
	}
	for _, path := range matches {
		file, err := safetensors.Open(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		for _, name := range file.Names() {
			if _, err := file.Read(name); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		file.Close()
	}
}

func TestDamagedFilesAreErrors(t *testing.T) {
	good := func(header string, data int) []byte {
		size := len(header)
		out := []byte{byte(size), byte(size >> 8), 0, 0, 0, 0, 0, 0}
		return append(append(out, header...), make([]byte, data)...)
	}
	for name, content := range map[string][]byte{
		"empty":     {},
		"length":    {255, 255, 255, 255, 255, 255, 255, 127},
		"cut off":   good(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 7),
		"no JSON":   good(`{"a"`, 0),
		"dtype":     good(`{"a":{"dtype":"X","shape":[2],"data_offsets":[0,8]}}`, 8),
		"size":      good(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8),
		"negative":  good(`{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8),
		"overflow":  good(`{"a":{"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, 8),
		"backwards": good(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8),
		"overlap": good(`{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},`+
			`"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8),
	} {
		if _, err := safetensors.New(bytes.NewReader(content), int64(len(content))); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	err := safetensors.Write(filepath.Join(t.TempDir(), "x"), []safetensors.Tensor{
		{Name: "a", DType: "F32", Shape: []int64{2}, Data: make([]byte, 7)}}, nil)
	if err == nil {
		t.Error("a tensor of the wrong size was written")
	}
}
