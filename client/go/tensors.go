package sparsefw

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"

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

// ListTensors is what the server has of this tenant, newest first; at most limit, 0: all.
func (c *Client) ListTensors(ctx context.Context, limit int) ([]*v1.Tensor, error) {
	var tensors []*v1.Tensor
	request := &v1.ListTensorsRequest{}
	for {
		request.PageSize = pageSize(limit, len(tensors))
		var page *v1.ListTensorsResponse
		err := c.call(ctx, "ListTensors", func(ctx context.Context) (err error) {
			page, err = c.tensors().ListTensors(ctx, request)
			return err
		})
		if err != nil {
			return nil, err
		}
		tensors = append(tensors, page.GetTensors()...)
		request.PageToken = page.GetNextPageToken()
		if request.PageToken == "" || (limit > 0 && len(tensors) >= limit) {
			return tensors, nil
		}
	}
}

const page = 1000

func pageSize(limit, there int) int32 {
	if left := limit - there; limit > 0 && left < page {
		return int32(left)
	}
	return page
}

// DeleteTensor is FAILED_PRECONDITION (TENSOR_IN_USE) while a job reads it.
func (c *Client) DeleteTensor(ctx context.Context, name string) error {
	return c.call(ctx, "DeleteTensor", func(ctx context.Context) error {
		_, err := c.tensors().DeleteTensor(ctx, &v1.DeleteTensorRequest{Name: name})
		return err
	})
}

// ReadTensor copies a tensor's bytes to a writer. Every chunk is checked before it is written, and the
// whole at the end; a broken connection goes on at the last good byte. An error of the writer ends it.
func (c *Client) ReadTensor(ctx context.Context, name string, to io.Writer, opts ...CallOption) (
	*v1.Tensor, error) {
	o := collect(opts)
	tensor, err := c.GetTensor(ctx, name)
	if err != nil {
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
	var data bytes.Buffer
	tensor, err := c.ReadTensor(ctx, name, &data)
	if err != nil {
		return Matrix{}, err
	}
	spec := tensor.GetSpec()
	m := Matrix{spec.GetDtype(), int(spec.GetDims()[0]), int(spec.GetDims()[1]), data.Bytes()}
	return m, m.check(name)
}

// ReadMask reads a mask.
func (c *Client) ReadMask(ctx context.Context, name string) (*Mask, error) {
	var data bytes.Buffer
	tensor, err := c.ReadTensor(ctx, name, &data)
	if err != nil {
		return nil, err
	}
	spec := tensor.GetSpec()
	if spec.GetKind() != v1.TensorKind_MASK || len(spec.GetDims()) != 2 {
		return nil, argument("%s must be a MASK; got a %s", name, spec.GetKind())
	}
	return &Mask{int(spec.GetDims()[0]), int(spec.GetDims()[1]), data.Bytes()}, nil
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
	name := r.tensor.GetName()
	stream, err := r.c.tensors().ReadTensor(ctx, &v1.ReadTensorRequest{Name: name, Offset: r.done})
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		chunk := response.GetChunk()
		data := chunk.GetData()
		if chunk.GetOffset() != r.done || r.done+int64(len(data)) > r.tensor.GetByteSize() {
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
