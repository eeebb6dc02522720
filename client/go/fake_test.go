package sparsefw_test

import (
	"context"
	"hash/crc32"
	"net"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

var errLost = status.Error(codes.Unavailable, "the connection was lost")

// fakeServer has one job, of a 1x8 layer. It loses connections at places where a test cannot make a real
// server lose them. Every upload is a tensor at once, named by its request id.
type fakeServer struct {
	v1.UnimplementedTensorServiceServer
	v1.UnimplementedPruneServiceServer

	mutex   sync.Mutex
	lost    map[string]bool // methods that fail for want of a connection
	removed []string        // names of what was deleted or cancelled
	silent  bool            // what is deleted is gone, but the answer is lost
	drains  bool            // the first deletion is refused, since the server drains
}

func startFake(t *testing.T, services interface {
	v1.TensorServiceServer
	v1.PruneServiceServer
}) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := grpc.NewServer()
	v1.RegisterTensorServiceServer(server, services)
	v1.RegisterPruneServiceServer(server, services)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func (f *fakeServer) loses(method string) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.lost[method] {
		return errLost
	}
	return nil
}

func (f *fakeServer) lose(methods ...string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.lost = map[string]bool{}
	for _, method := range methods {
		f.lost[method] = true
	}
}

func (f *fakeServer) remove(name string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.removed = append(f.removed, name)
}

// all that was deleted or cancelled.
func (f *fakeServer) all() []string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return append([]string(nil), f.removed...)
}

func (f *fakeServer) job(state v1.JobState) *v1.Job {
	return &v1.Job{
		Name: "jobs/one", State: state, Shape: []int64{1, 8}, Result: &v1.JobResult{Mask: "tensors/mask"},
	}
}

func (f *fakeServer) CheckJobOptions(context.Context, *v1.CheckJobOptionsRequest) (*v1.CheckJobOptionsResponse, error) {
	return &v1.CheckJobOptionsResponse{}, nil
}

func (f *fakeServer) CreateUpload(_ context.Context, request *v1.CreateUploadRequest) (*v1.CreateUploadResponse, error) {
	tensor := &v1.Tensor{Name: "tensors/" + request.GetRequestId()}
	return &v1.CreateUploadResponse{Result: &v1.CreateUploadResponse_Tensor{Tensor: tensor}}, nil
}

func (f *fakeServer) CreateJob(context.Context, *v1.CreateJobRequest) (*v1.Job, error) {
	return f.job(v1.JobState_JOB_STATE_RUNNING), nil
}

func (f *fakeServer) WatchJob(_ *v1.WatchJobRequest, stream v1.PruneService_WatchJobServer) error {
	if err := f.loses("WatchJob"); err != nil {
		return err
	}
	return stream.Send(&v1.JobEvent{Job: f.job(v1.JobState_JOB_STATE_SUCCEEDED)})
}

func (f *fakeServer) CancelJob(_ context.Context, request *v1.CancelJobRequest) (*v1.Job, error) {
	f.remove(request.GetName())
	return f.job(v1.JobState_JOB_STATE_CANCELLED), nil
}

var fakeMask = []byte{0x0f}

func (f *fakeServer) GetTensor(_ context.Context, request *v1.GetTensorRequest) (*v1.Tensor, error) {
	return &v1.Tensor{
		Name: request.GetName(), ByteSize: 1, Crc32C: crc32.Checksum(fakeMask, crc32.MakeTable(crc32.Castagnoli)),
		Spec: &v1.TensorSpec{
			Kind: v1.TensorKind_TENSOR_KIND_MASK, Dtype: v1.DataType_DATA_TYPE_U1, Dims: []int64{1, 8},
		},
	}, nil
}

func (f *fakeServer) ReadTensor(_ *v1.ReadTensorRequest, stream v1.TensorService_ReadTensorServer) error {
	if err := f.loses("ReadTensor"); err != nil {
		return err
	}
	sum := crc32.Checksum(fakeMask, crc32.MakeTable(crc32.Castagnoli))
	return stream.Send(&v1.ReadTensorResponse{Chunk: &v1.Chunk{Crc32C: sum, Data: fakeMask}})
}

func (f *fakeServer) delete(name string) (*emptypb.Empty, error) {
	if f.drains {
		f.remove(name) // another client does
		f.drains = false
		refusal, err := status.New(codes.Unavailable, "draining").WithDetails(&errdetails.ErrorInfo{Reason: "DRAINING"})
		if err != nil {
			return nil, err
		}
		return nil, refusal.Err()
	}
	for _, removed := range f.all() {
		if removed == name {
			return nil, status.Error(codes.NotFound, "it is not there")
		}
	}
	f.remove(name)
	if f.silent {
		return nil, errLost
	}
	return &emptypb.Empty{}, nil
}

func (f *fakeServer) DeleteTensor(_ context.Context, request *v1.DeleteTensorRequest) (*emptypb.Empty, error) {
	return f.delete(request.GetName())
}

func (f *fakeServer) DeleteUpload(_ context.Context, request *v1.DeleteUploadRequest) (*emptypb.Empty, error) {
	return f.delete(request.GetName())
}

func (f *fakeServer) DeleteJob(_ context.Context, request *v1.DeleteJobRequest) (*emptypb.Empty, error) {
	return f.delete(request.GetName())
}
