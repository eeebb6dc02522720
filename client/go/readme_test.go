package sparsefw_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program of the README, as it stands there, against a server.
func TestTheProgramOfTheReadmePrunesALayer(t *testing.T) {
	server := startServer(t)
	readme, err := os.ReadFile("README.md")
	must(t, err)
	_, rest, found := strings.Cut(string(readme), "```go\n")
	program, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("the README has no program")
	}
	folder, err := os.MkdirTemp(".", "readme-")
	must(t, err)
	defer os.RemoveAll(folder)
	program = strings.ReplaceAll(program, "127.0.0.1:50051", server.address)
	must(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o644))
	out, err := exec.Command("go", "run", "./"+folder).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "4864 of 8192 weights removed; 3328 kept") {
		t.Fatalf("%v: %s", err, out)
	}
}
