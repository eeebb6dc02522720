package sparsefw_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// liar takes every byte, gives no tensor and says that it has what it likes.
type liar struct {
	fakeServer
	before, after int64 // what it says it has
}

func (l *liar) CreateUpload(context.Context, *v1.CreateUploadRequest) (*v1.CreateUploadResponse, error) {
	upload := &v1.Upload{Name: "uploads/one", CommittedSize: l.before, CommittedTokens: l.before}
	return &v1.CreateUploadResponse{Result: &v1.CreateUploadResponse_Upload{Upload: upload}}, nil
}

func (l *liar) GetUpload(context.Context, *v1.GetUploadRequest) (*v1.Upload, error) {
	most := l.before
	if l.after > most {
		most = l.after
	}
	return &v1.Upload{Name: "uploads/one", CommittedSize: most, CommittedTokens: most}, nil
}

func (l *liar) WriteTensor(stream v1.TensorService_WriteTensorServer) error {
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return stream.SendAndClose(&v1.WriteTensorResponse{CommittedSize: l.after})
		} else if err != nil {
			return err
		}
	}
}

func (l *liar) AccumulateGram(stream v1.TensorService_AccumulateGramServer) error {
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return stream.SendAndClose(&v1.AccumulateGramResponse{CommittedTokens: l.after})
		} else if err != nil {
			return err
		}
	}
}

func TestPositionsThatCannotBeAreRefused(t *testing.T) {
	matrix := sparsefw.Float32(2, 8, make([]float32, 16)) // two tokens, 64 bytes
	for _, server := range []*liar{
		{before: -5}, {before: math.MinInt64}, {before: 65}, {before: math.MaxInt64 / 16}, {before: math.MaxInt64},
		{after: -5}, {after: 0}, {after: 1}, {after: math.MaxInt64},
	} {
		client := dial(t, startFake(t, server), impatient())
		limited, cancel := context.WithTimeout(ctx, time.Minute) // for hangs
		for what, upload := range map[string]func() (*v1.Tensor, error){
			"bytes": func() (*v1.Tensor, error) {
				return client.Upload(limited, v1.TensorKind_TENSOR_KIND_WEIGHT, matrix)
			},
			"tokens": func() (*v1.Tensor, error) { return client.Gram(limited, matrix) },
			"reader, in windows": func() (*v1.Tensor, error) {
				spec := &v1.TensorSpec{
					Kind: v1.TensorKind_TENSOR_KIND_WEIGHT, Dtype: v1.DataType_DATA_TYPE_F32, Dims: []int64{2, 8},
				}
				windows := dial(t, client.Address(), impatient(), sparsefw.WithWindowBytes(16))
				return windows.UploadReader(limited, spec, bytes.NewReader(matrix.Data))
			},
		} {
			if _, err := upload(); sparsefw.ReasonOf(err) != "PROTOCOL" {
				t.Errorf("%s, %d before and %d after: %v", what, server.before, server.after, err)
			}
		}
		cancel()
	}
}
