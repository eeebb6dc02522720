package sparsefw

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// GetTensor describes a tensor.
func (c *Client) GetTensor(ctx context.Context, name string) (*v1.Tensor, error) {
	var tensor *v1.Tensor
	err := c.call(ctx, "GetTensor", func(ctx context.Context) (err error) {
		tensor, err = c.tensors().GetTensor(ctx, &v1.GetTensorRequest{Name: name})
		return err
	})
	return tensor, err
}

// TensorFilter chooses tensors; its zero value all.
type TensorFilter struct {
	Kinds []v1.TensorKind // none: all
	Owner string          // as the uploader called itself; "": all
	Limit int             // 0: no limit
}

// ListTensors is what the server has of this tenant, newest first.
func (c *Client) ListTensors(ctx context.Context, filter TensorFilter) ([]*v1.Tensor, error) {
	return allPages(ctx, c, "ListTensors", filter.Limit, (*v1.ListTensorsResponse).GetTensors,
		func(ctx context.Context, size int32, token string) (*v1.ListTensorsResponse, error) {
			return c.tensors().ListTensors(ctx, &v1.ListTensorsRequest{
				PageSize: size, PageToken: token, Kinds: filter.Kinds, Owner: filter.Owner})
		})
}

// ListUploads is the uploads that have not ended, newest first; at most limit, 0: all.
func (c *Client) ListUploads(ctx context.Context, limit int) ([]*v1.Upload, error) {
	return allPages(ctx, c, "ListUploads", limit, (*v1.ListUploadsResponse).GetUploads,
		func(ctx context.Context, size int32, token string) (*v1.ListUploadsResponse, error) {
			return c.tensors().ListUploads(ctx, &v1.ListUploadsRequest{PageSize: size, PageToken: token})
		})
}

// DeleteUpload ends an upload and frees its room.
func (c *Client) DeleteUpload(ctx context.Context, name string) error {
	return c.remove(ctx, "DeleteUpload", func(ctx context.Context) error {
		_, err := c.tensors().DeleteUpload(ctx, &v1.DeleteUploadRequest{Name: name})
		return err
	})
}

// DeleteTensor is FAILED_PRECONDITION (TENSOR_IN_USE) while a job reads it.
func (c *Client) DeleteTensor(ctx context.Context, name string) error {
	return c.remove(ctx, "DeleteTensor", func(ctx context.Context) error {
		_, err := c.tensors().DeleteTensor(ctx, &v1.DeleteTensorRequest{Name: name})
		return err
	})
}

// ReadTensor copies a tensor's bytes to a writer. Every chunk is checked before it is written, and the
// whole at the end; a broken connection, and one on which nothing has come for the time of
// WithWatchSilence, goes on at the last good byte. An error of the writer ends it.
func (c *Client) ReadTensor(ctx context.Context, name string, to io.Writer, opts ...CallOption) (
	*v1.Tensor, error) {
	return c.readTensor(ctx, name, to, &v1.TensorSpec{}, collect(opts))
}

// readTensor refuses a tensor that is not as expected, in the fields that are set there.
func (c *Client) readTensor(ctx context.Context, name string, to io.Writer, expected *v1.TensorSpec,
	o callOptions) (*v1.Tensor, error) {
	tensor, err := c.GetTensor(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := checkDescription(tensor, name, expected); err != nil {
		return nil, err
	}
	r := reading{c: c, tensor: tensor, to: to, progress: o.progress}
	b := c.newBackoff()
	for r.done < tensor.GetByteSize() {
		before := r.done
		err := r.stream(c.outgoing(ctx))
		if r.failed != nil {
			return nil, r.failed
		}
		if err == nil && r.done < tensor.GetByteSize() {
			err = refuse(codes.Unavailable, "PROTOCOL", "%s: the stream ended at byte %d of %d", name,
				r.done, tensor.GetByteSize())
		}
		if err == nil {
			break
		}
		e := asError(ctx, err)
		if ctx.Err() != nil || !(e.transient() || e.Code == codes.DataLoss) {
			return nil, e
		}
		if r.done > before {
			b.reset()
		}
		if err := c.wait(ctx, e, b); err != nil {
			return nil, err
		}
	}
	if r.sum != tensor.GetCrc32C() {
		return nil, refuse(codes.DataLoss, "CHECKSUM_MISMATCH", "%s: the bytes do not match their checksum",
			name)
	}
	return tensor, nil
}

// ReadMatrix reads a weight, Gram matrix, saliency or pruned weight.
func (c *Client) ReadMatrix(ctx context.Context, name string) (Matrix, error) {
	return c.readMatrix(ctx, name, &v1.TensorSpec{})
}

func (c *Client) readMatrix(ctx context.Context, name string, expected *v1.TensorSpec) (Matrix, error) {
	var data bytes.Buffer
	tensor, err := c.readTensor(ctx, name, &data, expected, callOptions{})
	if err != nil {
		return Matrix{}, err
	}
	spec := tensor.GetSpec()
	m := Matrix{spec.GetDtype(), int(spec.GetDims()[0]), int(spec.GetDims()[1]), data.Bytes()}
	return m, m.check(name)
}

// ReadMask reads a mask.
func (c *Client) ReadMask(ctx context.Context, name string) (*Mask, error) {
	return c.readMask(ctx, name, &v1.TensorSpec{})
}

func (c *Client) readMask(ctx context.Context, name string, expected *v1.TensorSpec) (*Mask, error) {
	var data bytes.Buffer
	tensor, err := c.readTensor(ctx, name, &data, expected, callOptions{})
	if err != nil {
		return nil, err
	}
	spec := tensor.GetSpec()
	if spec.GetKind() != v1.TensorKind_TENSOR_KIND_MASK || spec.GetDtype() != v1.DataType_DATA_TYPE_U1 {
		return nil, argument("%s must be a MASK; got a %s", name, ShortName(spec.GetKind()))
	}
	return &Mask{int(spec.GetDims()[0]), int(spec.GetDims()[1]), data.Bytes()}, nil
}

// checkDescription is about what the server says, before anything is done with it.
func checkDescription(tensor *v1.Tensor, name string, expected *v1.TensorSpec) error {
	spec := tensor.GetSpec()
	if size, ok := byteSize(spec); !ok || size != tensor.GetByteSize() {
		return refuse(codes.Internal, "PROTOCOL",
			"%s: byte_size must be that of its dims and dtype; the server says %d for %s", name,
			tensor.GetByteSize(), describe(spec))
	}
	same := (expected.GetKind() == 0 || expected.GetKind() == spec.GetKind()) &&
		(expected.GetDtype() == 0 || expected.GetDtype() == spec.GetDtype()) &&
		(len(expected.GetDims()) == 0 || sameDims(expected.GetDims(), spec.GetDims()))
	if same {
		return nil
	}
	return refuse(codes.Internal, "PROTOCOL", "%s: must be %s; the server says %s", name, describe(expected),
		describe(spec))
}

// describe is "MASK [4 8] of U1"; what is not set is left out.
func describe(spec *v1.TensorSpec) string {
	text := fmt.Sprint(spec.GetDims())
	if spec.GetKind() != 0 {
		text = ShortName(spec.GetKind()) + " " + text
	}
	if spec.GetDtype() != 0 {
		text += " of " + ShortName(spec.GetDtype())
	}
	return text
}

func sameDims(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// byteSize is false where a tensor cannot be like this.
func byteSize(spec *v1.TensorSpec) (int64, bool) {
	dims := spec.GetDims()
	if len(dims) != 2 || dims[0] < 1 || dims[1] < 1 {
		return 0, false
	}
	row := dims[1]/8 + (dims[1]%8+7)/8
	if spec.GetDtype() != v1.DataType_DATA_TYPE_U1 {
		size := int64(elementBytes(spec.GetDtype()))
		if size == 0 || dims[1] > math.MaxInt64/size {
			return 0, false
		}
		row = dims[1] * size
	}
	if dims[0] > math.MaxInt64/row {
		return 0, false
	}
	return dims[0] * row, true
}

type reading struct {
	c        *Client
	tensor   *v1.Tensor
	to       io.Writer
	progress func(int64)
	done     int64
	sum      uint32
	failed   error // of the writer
}

func (r *reading) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var silent int32
	silence := r.c.options.watchSilence
	guard := time.AfterFunc(silence, func() {
		atomic.StoreInt32(&silent, 1)
		cancel()
	})
	defer guard.Stop()
	err := r.chunks(ctx, guard, silence)
	if err != nil && r.failed == nil && atomic.LoadInt32(&silent) == 1 {
		return refuse(codes.Unavailable, "UNREACHABLE", "nothing came of %s for %s", r.tensor.GetName(), silence)
	}
	return err
}

// chunks reads one stream; the guard runs while it waits for the server, not for the writer.
func (r *reading) chunks(ctx context.Context, guard *time.Timer, silence time.Duration) error {
	name := r.tensor.GetName()
	stream, err := r.c.tensors().ReadTensor(ctx, &v1.ReadTensorRequest{Name: name, Offset: r.done})
	if err != nil {
		return err
	}
	for {
		guard.Reset(silence)
		response, err := stream.Recv()
		guard.Stop()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		chunk := response.GetChunk()
		data := chunk.GetData()
		// A chunk of no bytes is no progress: a server could send them for ever.
		left := r.tensor.GetByteSize() - r.done
		if chunk.GetOffset() != r.done || len(data) == 0 || int64(len(data)) > left {
			return refuse(codes.Internal, "PROTOCOL", "%s: expected bytes at %d of %d; got %d bytes at %d",
				name, r.done, r.tensor.GetByteSize(), len(data), chunk.GetOffset())
		}
		if crc32.Checksum(data, castagnoli) != chunk.GetCrc32C() {
			return refuse(codes.DataLoss, "CHECKSUM_MISMATCH",
				"%s: the chunk at byte %d does not match its checksum", name, r.done)
		}
		if _, r.failed = r.to.Write(data); r.failed != nil {
			return r.failed
		}
		r.sum = crc32.Update(r.sum, castagnoli, data)
		r.done += int64(len(data))
		if r.progress != nil {
			r.progress(r.done)
		}
	}
}
