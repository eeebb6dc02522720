package sparsefw_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// until waits for what must come; a test that hangs is ended by go test.
func until(come func() bool) {
	for !come() {
		time.Sleep(5 * time.Millisecond)
	}
}

func TestAnUploadThatWasFinishedWhenItWasCancelledIsDeleted(t *testing.T) {
	server := startServer(t)
	direct, between := server.dial(), startProxy(t, server.address)
	client := dial(t, between.address)
	finished := func() bool {
		tensors, err := direct.ListTensors(ctx, sparsefw.TensorFilter{})
		must(t, err)
		return len(tensors) > 0
	}
	limited, cancel := context.WithCancel(ctx)
	var once sync.Once
	failed := make(chan error)
	go func() {
		_, err := client.Upload(limited, v1.TensorKind_TENSOR_KIND_WEIGHT, makeLayer(8, 8, 8).Weight,
			sparsefw.WithProgress(func(int64) { once.Do(between.answers.Lock) }))
		failed <- err
	}()
	until(finished)
	before := between.bytes()
	cancel()
	// Only when the client has noticed may the answer come, or it would be in time.
	until(func() bool { return between.bytes() > before })
	between.answers.Unlock()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if finished() {
		t.Error("its tensor was left")
	}
}

// forgetful makes an upload and never answers; only the same request again tells its name.
type forgetful struct {
	fakeServer
	once sync.Once
	made chan string
}

func (f *forgetful) CreateUpload(ctx context.Context, request *v1.CreateUploadRequest) (*v1.CreateUploadResponse, error) {
	name := "uploads/" + request.GetRequestId()
	f.once.Do(func() {
		f.made <- name
		<-ctx.Done()
	})
	upload := &v1.Upload{Name: name}
	return &v1.CreateUploadResponse{Result: &v1.CreateUploadResponse_Upload{Upload: upload}}, nil
}

func TestAnUploadWhoseNameIsLostIsDeleted(t *testing.T) {
	server := &forgetful{made: make(chan string, 1)}
	client := dial(t, startFake(t, server))
	limited, cancel := context.WithCancel(ctx)
	failed := make(chan error)
	go func() {
		_, err := client.Upload(limited, v1.TensorKind_TENSOR_KIND_WEIGHT, smallLayer().Weight)
		failed <- err
	}()
	name := <-server.made
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if removed := server.all(); !reflect.DeepEqual(removed, []string{name}) {
		t.Errorf("removed: %v, expected %s", removed, name)
	}
}

// deaf makes a job and never answers; only the same request again tells its name.
type deaf struct {
	fakeServer
	mutex    sync.Mutex
	requests []string
	refusal  error
	made     chan struct{}
}

func (d *deaf) CreateJob(ctx context.Context, request *v1.CreateJobRequest) (*v1.Job, error) {
	d.mutex.Lock()
	d.requests = append(d.requests, request.GetRequestId())
	first := len(d.requests) == 1
	d.mutex.Unlock()
	if d.refusal != nil {
		return nil, d.refusal
	}
	if first {
		d.made <- struct{}{}
		<-ctx.Done()
	}
	return d.job(v1.JobState_JOB_STATE_RUNNING), nil
}

func (d *deaf) asked() []string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return append([]string(nil), d.requests...)
}

func TestAJobWhoseNameIsLostIsCancelled(t *testing.T) {
	server := &deaf{made: make(chan struct{}, 1)}
	client := dial(t, startFake(t, server))
	limited, cancel := context.WithCancel(ctx)
	failed := make(chan error)
	go func() {
		_, err := client.Prune(limited, smallLayer(), wanda(0.5), nil)
		failed <- err
	}()
	<-server.made
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if ids := server.asked(); len(ids) != 2 || ids[0] == "" || ids[0] != ids[1] {
		t.Errorf("requests: %q", ids)
	}
	if removed := server.all(); len(removed) != 3 || removed[0] != "jobs/one" {
		t.Errorf("removed: %v", removed)
	}
}

// Whoever named the request comes back to it.
func TestAJobOfANamedPruneGoesOn(t *testing.T) {
	server := &deaf{made: make(chan struct{}, 1)}
	client := dial(t, startFake(t, server))
	limited, cancel := context.WithCancel(ctx)
	failed := make(chan error)
	go func() {
		_, err := client.Prune(limited, smallLayer(), wanda(0.5), nil, sparsefw.WithRequestID("mine"))
		failed <- err
	}()
	<-server.made
	cancel()
	<-failed
	if ids, removed := server.asked(), server.all(); !reflect.DeepEqual(ids, []string{"mine"}) || len(removed) > 0 {
		t.Errorf("requests: %q, removed: %v", ids, removed)
	}
}

func TestAJobThatWasRefusedIsNotAskedForAgain(t *testing.T) {
	refusal, err := status.New(codes.InvalidArgument, "no").WithDetails(&errdetails.ErrorInfo{Reason: "OPTION_INVALID"})
	must(t, err)
	server := &deaf{refusal: refusal.Err()}
	client := dial(t, startFake(t, server))
	if _, err := client.Prune(ctx, smallLayer(), wanda(0.5), nil); sparsefw.ReasonOf(err) != "OPTION_INVALID" {
		t.Errorf("%v", err)
	}
	if ids := server.asked(); len(ids) != 1 {
		t.Errorf("requests: %q", ids)
	}
	if removed := server.all(); len(removed) != 2 {
		t.Errorf("removed: %v", removed)
	}
}
