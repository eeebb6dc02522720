package sparsefw

import (
	"context"
	"hash/crc32"
	"io"
	"math"

	"google.golang.org/grpc/codes"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// Saving a sum writes all of it, 8*d_in^2 bytes: windows of activations are no smaller than four of it.
const (
	minGramWindow = 64 << 20
	maxGramWindow = 512 << 20
)

// Gram has the server sum activations [tokens, d_in] of F32, F16 or BF16 into G = X^T X.
func (c *Client) Gram(ctx context.Context, activations Matrix, opts ...CallOption) (*v1.Tensor, error) {
	if err := activations.check("activations"); err != nil {
		return nil, err
	}
	spec := &v1.GramSpec{DIn: int64(activations.Cols), ActivationDtype: activations.DType}
	o := collect(opts)
	g, err := newGramContent(spec, wholeWindow(activations.Data), o.progress)
	if err != nil {
		return nil, err
	}
	return c.upload(ctx, g, o)
}

// GramReader is Gram for whole tokens from a source that is read once. No token counts twice, whatever
// breaks. What the server has not saved yet is kept, 64 to 512 MiB by d_in.
func (c *Client) GramReader(ctx context.Context, spec *v1.GramSpec, source io.Reader,
	opts ...CallOption) (*v1.Tensor, error) {
	o := collect(opts)
	limit := 32 * spec.GetDIn() * spec.GetDIn()
	if limit < minGramWindow {
		limit = minGramWindow
	} else if limit > maxGramWindow {
		limit = maxGramWindow
	}
	g, err := newGramContent(spec, readerWindow(source, int(limit)), o.progress)
	if err != nil {
		return nil, err
	}
	// Whole tokens.
	g.window.limit -= g.window.limit % int(g.tokenBytes)
	return c.upload(ctx, g, o)
}

// SumGrams adds up Gram matrices that are on the server, each named once; the parts stay. For several
// calibration workers: each makes the Gram matrix of its own tokens, one adds them up.
func (c *Client) SumGrams(ctx context.Context, grams []string, dtype v1.DataType, opts ...CallOption) (
	*v1.Tensor, error) {
	o := collect(opts)
	request := &v1.SumGramsRequest{
		Grams: grams, GramDtype: dtype, RequestId: o.id(), Owner: c.options.owner,
	}
	var sum *v1.Tensor
	err := c.call(ctx, "SumGrams", func(ctx context.Context) (err error) {
		sum, err = c.tensors().SumGrams(ctx, request)
		return err
	})
	return sum, err
}

type gramContent struct {
	spec       *v1.GramSpec
	window     *window
	tokenBytes int64
	progress   func(int64)
}

func newGramContent(spec *v1.GramSpec, w *window, progress func(int64)) (*gramContent, error) {
	size := elementBytes(spec.GetActivationDtype())
	if size == 0 || size == 8 {
		return nil, argument("activations must be of dtype F32, F16 or BF16; got %s",
			spec.GetActivationDtype())
	}
	if spec.GetDIn() < 1 {
		return nil, argument("d_in must be at least 1; got %d", spec.GetDIn())
	}
	if widest := int64(MaxChunkBytes / size); spec.GetDIn() > widest {
		return nil, argument("d_in must be at most %d, one token to a message; got %d", widest, spec.GetDIn())
	}
	return &gramContent{spec, w, spec.GetDIn() * int64(size), progress}, nil
}

func (g *gramContent) create() *v1.CreateUploadRequest {
	return &v1.CreateUploadRequest{Content: &v1.CreateUploadRequest_Gram{Gram: g.spec}}
}
func (g *gramContent) committed(upload *v1.Upload) int64 { return upload.GetCommittedTokens() }
func (g *gramContent) key() string                       { return "committed_tokens" }
func (g *gramContent) moveTo(committed int64) error {
	if committed > math.MaxInt64/g.tokenBytes { // a server may say anything
		return refuse(codes.Internal, "PROTOCOL", "the server has %d tokens of %d bytes", committed, g.tokenBytes)
	}
	offset := committed * g.tokenBytes
	for offset > g.window.end() && !g.window.ended {
		if err := g.window.moveTo(g.window.end()); err != nil {
			return err
		}
	}
	if offset > g.window.end() {
		return refuse(codes.Internal, "PROTOCOL", "the server has %d tokens of %d", committed,
			g.window.end()/g.tokenBytes)
	}
	if err := g.window.moveTo(offset); err != nil {
		return err
	}
	if g.window.ended && g.window.end()%g.tokenBytes != 0 {
		return argument("activations must be whole tokens of %d bytes; got %d bytes", g.tokenBytes,
			g.window.end())
	}
	return nil
}

func (g *gramContent) send(ctx context.Context, c *Client, upload string, committed int64) (
	*v1.Tensor, int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.tensors().AccumulateGram(ctx)
	if err != nil {
		return nil, 0, err
	}
	chunk := int64(c.options.chunkBytes) / g.tokenBytes * g.tokenBytes
	if chunk == 0 {
		chunk = g.tokenBytes
	}
	request := &v1.AccumulateGramRequest{Target: &v1.AccumulateGramRequest_Upload{Upload: upload}}
	for offset := committed * g.tokenBytes; ; {
		data := g.window.from(offset)
		if int64(len(data)) > chunk {
			data = data[:chunk]
		}
		request.TokenOffset, request.Data = offset/g.tokenBytes, data
		request.Crc32C = crc32.Checksum(data, castagnoli)
		offset += int64(len(data))
		last := offset == g.window.end()
		request.Finish = last && g.window.ended
		if stream.Send(request) != nil { // CloseAndRecv says why
			break
		}
		if g.progress != nil {
			g.progress(offset)
		}
		if last {
			break
		}
		request = &v1.AccumulateGramRequest{}
	}
	response, err := stream.CloseAndRecv()
	if err != nil {
		return nil, 0, err
	}
	if request.GetFinish() && response.GetGram() == nil {
		return nil, 0, unfinished("AccumulateGram")
	}
	return response.GetGram(), response.GetCommittedTokens(), nil
}
