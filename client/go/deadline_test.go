package sparsefw_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// hasty answers DEADLINE_EXCEEDED while the caller's own timer still runs.
type hasty struct {
	fakeServer
	calls int32
}

func (h *hasty) expire(ctx context.Context) error {
	atomic.AddInt32(&h.calls, 1)
	deadline, _ := ctx.Deadline()
	time.Sleep(time.Until(deadline) - 50*time.Millisecond)
	return status.Error(codes.DeadlineExceeded, "Deadline Exceeded")
}

func (h *hasty) GetServerInfo(ctx context.Context, _ *v1.GetServerInfoRequest) (*v1.ServerInfo, error) {
	return nil, h.expire(ctx)
}

func (h *hasty) WatchJob(_ *v1.WatchJobRequest, stream v1.PruneService_WatchJobServer) error {
	return h.expire(stream.Context())
}

func (h *hasty) CreateUpload(context.Context, *v1.CreateUploadRequest) (*v1.CreateUploadResponse, error) {
	upload := &v1.Upload{Name: "uploads/one"}
	return &v1.CreateUploadResponse{Result: &v1.CreateUploadResponse_Upload{Upload: upload}}, nil
}

func (h *hasty) WriteTensor(stream v1.TensorService_WriteTensorServer) error {
	return h.expire(stream.Context())
}

func (h *hasty) ReadTensor(_ *v1.ReadTensorRequest, stream v1.TensorService_ReadTensorServer) error {
	return h.expire(stream.Context())
}

func TestADeadlineThatTheServerSeesFirstIsTheCallers(t *testing.T) {
	server := &hasty{}
	client := dial(t, startFake(t, server), quick())
	for what, call := range map[string]func(context.Context) error{
		"call": func(ctx context.Context) error { _, err := client.ServerInfo(ctx); return err },
		"wait": func(ctx context.Context) error { _, err := client.Wait(ctx, "jobs/one", nil); return err },
		"read": func(ctx context.Context) error {
			_, err := client.ReadTensor(ctx, "tensors/mask", io.Discard)
			return err
		},
		"upload": func(ctx context.Context) error {
			_, err := client.Upload(ctx, v1.TensorKind_TENSOR_KIND_WEIGHT, smallLayer().Weight)
			return err
		},
	} {
		before := atomic.LoadInt32(&server.calls)
		limited, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		err := call(limited)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || sparsefw.ReasonOf(err) != "STOPPED" {
			t.Errorf("%s: %v", what, err)
		}
		if calls := atomic.LoadInt32(&server.calls) - before; calls != 1 {
			t.Errorf("%s: %d calls", what, calls)
		}
	}
}
