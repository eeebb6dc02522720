package sparsefw_test

import (
	"bufio"
	"context"
	"io"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
)

var ready = regexp.MustCompile(`^listening on (\S+:\d+) `)

// server is a real sparsefw-server on a free port of the loopback; it can be killed and started again
// on the same port and state folder.
type server struct {
	t       *testing.T
	folder  string
	flags   []string
	address string
	process *exec.Cmd
}

func startServer(t *testing.T, flags ...string) *server {
	t.Helper()
	s := &server{t: t, folder: t.TempDir(), flags: flags, address: "127.0.0.1:0"}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.t.Helper()
	bin := os.Getenv("SPARSEFW_BIN_DIR")
	if bin == "" {
		s.t.Fatal("SPARSEFW_BIN_DIR must be the folder of sparsefw-server; script/go sets it")
	}
	flags := append([]string{"--listen", s.address, "--metrics-listen", "127.0.0.1:0", "--device", "cpu",
		"--state-dir", filepath.Join(s.folder, "state")}, s.flags...)
	s.process = exec.Command(filepath.Join(bin, "sparsefw-server"), flags...)
	out, err := s.process.StdoutPipe()
	must(s.t, err)
	log, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(s.t, err)
	defer log.Close()
	s.process.Stderr = log
	must(s.t, s.process.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if match := ready.FindStringSubmatch(lines.Text()); match != nil {
			s.address = match[1]
			go io.Copy(io.Discard, out)
			return
		}
	}
	text, _ := os.ReadFile(filepath.Join(s.folder, "log"))
	s.t.Fatalf("no server: %s", text)
}

func (s *server) kill() {
	if s.process != nil {
		s.process.Process.Kill()
		s.process.Wait()
		s.process = nil
	}
}

func (s *server) dial(opts ...sparsefw.Option) *sparsefw.Client { return dial(s.t, s.address, opts...) }

func dial(t *testing.T, address string, opts ...sparsefw.Option) *sparsefw.Client {
	t.Helper()
	client, err := sparsefw.Dial(context.Background(), address, opts...)
	must(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// retries remembers what was tried again.
type retries struct {
	sync.Mutex
	errors []error
}

func (r *retries) option() sparsefw.Option {
	return sparsefw.WithOnRetry(func(err error, _ time.Duration) {
		r.Lock()
		defer r.Unlock()
		r.errors = append(r.errors, err)
	})
}

func (r *retries) count() int {
	r.Lock()
	defer r.Unlock()
	return len(r.errors)
}

func quick() sparsefw.Option {
	return sparsefw.WithRetry(sparsefw.RetryPolicy{
		Initial: 20 * time.Millisecond, Max: 100 * time.Millisecond, Multiplier: 2,
		GiveUpAfter: 30 * time.Second,
	})
}

// proxy forwards to a server and resets the connection that brings a client's byte number cuts[0],
// cuts[1], ...: the bytes up to there are delivered, no more.
type proxy struct {
	target   string
	address  string
	mutex    sync.Mutex
	cuts     []int64
	received int64
	answers  sync.RWMutex // held for writing, nothing comes back from the server
}

func startProxy(t *testing.T, target string, cuts ...int64) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	p := &proxy{target: target, address: listener.Addr().String(), cuts: cuts}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client.(*net.TCPConn))
		}
	}()
	return p
}

func (p *proxy) serve(client *net.TCPConn) {
	defer client.Close()
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		p.answer(client, up)
		client.Close()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		cut := false
		p.mutex.Lock()
		if len(p.cuts) > 0 && p.received+int64(n) >= p.cuts[0] {
			n, cut = int(p.cuts[0]-p.received), true
			p.cuts = p.cuts[1:]
		}
		p.received += int64(n)
		p.mutex.Unlock()
		if n > 0 {
			up.Write(buffer[:n])
		}
		if cut {
			client.SetLinger(0)
			return
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) answer(client, up net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := up.Read(buffer)
		p.answers.RLock()
		client.Write(buffer[:n])
		p.answers.RUnlock()
		if err != nil {
			return
		}
	}
}

func (p *proxy) bytes() int64 {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.received
}

func (p *proxy) cutsLeft() int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return len(p.cuts)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// layer is made up: random weights, correlated activations and their Gram matrix.
type layer struct {
	rows, cols, tokens         int
	weight, activations, gram  []float32
	fullLoss                   float64
	Weight, Activations, Gram_ sparsefw.Matrix
}

func makeLayer(rows, cols, tokens int) *layer {
	random := rand.New(rand.NewSource(7))
	l := &layer{rows: rows, cols: cols, tokens: tokens}
	l.weight = make([]float32, rows*cols)
	for i := range l.weight {
		l.weight[i] = float32(random.NormFloat64())
	}
	l.activations = make([]float32, tokens*cols)
	for t := 0; t < tokens; t++ {
		shared := random.NormFloat64()
		for j := 0; j < cols; j++ {
			l.activations[t*cols+j] = float32(random.NormFloat64() + shared*float64(j%3))
		}
	}
	l.gram = make([]float32, cols*cols)
	for i := 0; i < cols; i++ {
		for j := 0; j < cols; j++ {
			sum := 0.0
			for t := 0; t < tokens; t++ {
				sum += float64(l.activations[t*cols+i]) * float64(l.activations[t*cols+j])
			}
			l.gram[i*cols+j] = float32(sum)
		}
	}
	l.Weight = sparsefw.Float32(rows, cols, l.weight)
	l.Activations = sparsefw.Float32(tokens, cols, l.activations)
	l.Gram_ = sparsefw.Float32(cols, cols, l.gram)
	return l
}

// loss is sum_i d_i G d_i^T over the rows d_i of the removed weights, in float64.
func (l *layer) loss(mask *sparsefw.Mask) float64 {
	total := 0.0
	for row := 0; row < l.rows; row++ {
		removed := make([]float64, l.cols)
		for col := range removed {
			if !mask.Keep(row, col) {
				removed[col] = float64(l.weight[row*l.cols+col])
			}
		}
		for i, a := range removed {
			for j, b := range removed {
				total += a * b * float64(l.gram[i*l.cols+j])
			}
		}
	}
	return total
}
