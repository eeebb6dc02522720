package sparsefw_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

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
