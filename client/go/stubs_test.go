package sparsefw_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The stubs are those of the proto files. Skipped where the generators are not installed.
func TestTheStubsAreOfTheseProtos(t *testing.T) {
	for _, program := range []string{"protoc", "protoc-gen-go", "protoc-gen-go-grpc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	folder := t.TempDir()
	out, err := exec.Command("./generate-stubs", folder).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	made, err := filepath.Glob(filepath.Join(folder, "v1", "*.go"))
	must(t, err)
	if len(made) != 6 {
		t.Fatalf("%v", made)
	}
	for _, path := range made {
		fresh, err := os.ReadFile(path)
		must(t, err)
		kept, err := os.ReadFile(filepath.Join("v1", filepath.Base(path)))
		must(t, err)
		if string(fresh) != string(kept) {
			t.Errorf("v1/%s is old: run client/go/generate-stubs", filepath.Base(path))
		}
	}
}
