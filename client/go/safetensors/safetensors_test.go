package safetensors_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/sparsefw/sparsefw/client/go/safetensors"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	tensors := []safetensors.Tensor{
		{Name: "weight", DType: "F32", Shape: []int64{2, 3}, Data: bytes.Repeat([]byte{1, 2, 3, 4}, 6)},
		{Name: "empty", DType: "I8", Shape: []int64{0, 5}, Data: nil},
		{Name: "without columns", DType: "F32", Shape: []int64{5, 0}, Data: nil},
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
	if file.Metadata["format"] != "pt" || len(file.Names()) != len(tensors) {
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
		"hole": good(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},`+
			`"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3),
		"tail": good(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2),
		"name twice": good(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},`+
			`"\u0061":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2),
		"metadata twice":  good(`{"__metadata__":{},"__metadata__":{}}`, 0),
		"key twice":       good(`{"__metadata__":{"a":"1","a":"2"}}`, 0),
		"metadata null":   good(`{"__metadata__":{"a":null}}`, 0),
		"field twice":     good(`{"a":{"dtype":"U8","shape":[1],"shape":[2],"data_offsets":[0,2]}}`, 2),
		"unknown field":   good(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"color":1}}`, 1),
		"field's case":    good(`{"a":{"DType":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
		"missing shape":   good(`{"a":{"dtype":"U8","data_offsets":[0,1]}}`, 1),
		"shape null":      good(`{"a":{"dtype":"U8","shape":null,"data_offsets":[0,1]}}`, 1),
		"fraction":        good(`{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, 1),
		"one offset":      good(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}}`, 0),
		"three offsets":   good(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1),
		"half a byte":     good(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}`, 1),
		"negative, empty": good(`{"a":{"dtype":"U8","shape":[0,-1],"data_offsets":[0,0]}}`, 0),
		"not UTF-8":       good("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1),
		"leading blank":   good(` {}`, 0),
		"text afterwards": good(`{} x`, 0),
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

func TestEveryDTypeAndAnEmptyTensorBesideAnotherAreRead(t *testing.T) {
	header := `{"b":{"dtype":"F4","shape":[4],"data_offsets":[0,2]},"a":{"dtype":"F32","shape":[5,0],` +
		`"data_offsets":[0,0]},"c":{"dtype":"F64","shape":[9223372036854775807,9,0],"data_offsets":[2,2]}}`
	content := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header+"xy"...)
	file, err := safetensors.New(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	if names := file.Names(); !reflect.DeepEqual(names, []string{"a", "b", "c"}) {
		t.Errorf("%v", names)
	}
	if b, err := file.Read("b"); err != nil || string(b.Data) != "xy" {
		t.Errorf("%v %v", b, err)
	}
}

func TestNamesThatCannotBeReadBackAreNotWritten(t *testing.T) {
	for _, name := range []string{"__metadata__", "\xff"} {
		err := safetensors.Write(filepath.Join(t.TempDir(), "x"), []safetensors.Tensor{{Name: name, DType: "U8", Shape: []int64{0}}}, nil)
		if err == nil {
			t.Errorf("%q was written", name)
		}
	}
}

func TestALinkStaysAndTheFileBehindItIsReplaced(t *testing.T) {
	folder := t.TempDir()
	file, link := filepath.Join(folder, "sub", "a"), filepath.Join(folder, "link")
	if err := os.Mkdir(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("sub/a", link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dangling", "there"} {
		err := safetensors.Write(link, nil, map[string]string{"name": name})
		if info, statErr := os.Lstat(link); err != nil || statErr != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Fatalf("%s: %v %v", name, err, statErr)
		}
		written, err := safetensors.Open(file)
		if err != nil || written.Metadata["name"] != name {
			t.Fatalf("%s: %v %v", name, written, err)
		}
		written.Close()
	}
}

func TestAFolderAboveALinkIsThatOfItsTarget(t *testing.T) {
	folder := t.TempDir()
	inner := filepath.Join(folder, "far", "away", "inner")
	tensors := []safetensors.Tensor{{Name: "x", DType: "U8", Shape: []int64{1}, Data: []byte{1}}}
	for _, err := range []error{
		os.MkdirAll(inner, 0o755),
		os.Symlink(inner, filepath.Join(folder, "link")),
		safetensors.Write(folder+"/link/../out.safetensors", tensors, nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "far", "away", "out.safetensors")); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 2 {
		t.Errorf("left beside the link: %v", entries)
	}
}

func TestOnlyRegularFilesAreReplaced(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	behind, err := os.Create(filepath.Join(t.TempDir(), "behind"))
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Close()
	for _, path := range []string{pipe, filepath.Dir(pipe), fmt.Sprintf("/dev/fd/%d", behind.Fd())} {
		if err := safetensors.Write(path, nil, nil); err == nil || !strings.Contains(err.Error(), "regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if info, err := os.Stat(pipe); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		t.Errorf("%v %v", info, err)
	}
}

func TestAHeaderThatCannotBeReadBackIsNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	err := safetensors.Write(path, nil, map[string]string{"long": strings.Repeat("x", 100_000_000)})
	if _, statErr := os.Stat(path); err == nil || !strings.Contains(err.Error(), "at most") || statErr == nil {
		t.Errorf("%v %v", err, statErr)
	}
}

func TestAFileHasThePermissionsOfANewFile(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	path := filepath.Join(t.TempDir(), "a.safetensors")
	if err := safetensors.Write(path, nil, nil); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}
