package sparsefw

import (
	"context"
	"hash/crc32"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CallOption changes one call.
type CallOption func(*callOptions)

type callOptions struct {
	requestID string
	progress  func(sent int64)
}

// WithRequestID names the call: the same call with the same id gives the same upload, tensor or job,
// also from a later process. Otherwise one is made up.
func WithRequestID(id string) CallOption { return func(o *callOptions) { o.requestID = id } }

// WithProgress is called after every message of a transfer, with the bytes sent or read so far;
// after a broken connection they may be fewer than before.
func WithProgress(observer func(bytes int64)) CallOption {
	return func(o *callOptions) { o.progress = observer }
}

func (o callOptions) id() string {
	if o.requestID == "" {
		return NewRequestID()
	}
	return o.requestID
}

func collect(opts []CallOption) callOptions {
	var o callOptions
	for _, option := range opts {
		option(&o)
	}
	return o
}

func unfinished(method string) error {
	return refuse(codes.Internal, "PROTOCOL", "%s ended without the finished tensor", method)
}

// content is what an upload sends. Positions are bytes of a tensor, tokens of activations.
type content interface {
	create() *v1.CreateUploadRequest
	committed(*v1.Upload) int64
	key() string // of the committed position in the metadata of errors
	// moveTo is called before send: the server has everything before `committed`.
	moveTo(committed int64) error
	// send streams what is at hand from `committed` on and returns the finished tensor, or how far the
	// server has got.
	send(ctx context.Context, c *Client, upload string, committed int64) (*v1.Tensor, int64, error)
}

// UploadBytes sends a tensor. A broken connection goes on at the last byte that the server has on its
// disk; a server that has forgotten the upload gets it from the start.
func (c *Client) UploadBytes(ctx context.Context, spec *v1.TensorSpec, data []byte,
	opts ...CallOption) (*v1.Tensor, error) {
	o := collect(opts)
	return c.upload(ctx, &tensorContent{spec: spec, window: wholeWindow(data), progress: o.progress}, o)
}

// UploadReader is UploadBytes for a source that is read once, as fast as the server takes it. What the
// server does not have on its disk yet is kept, at most the window (WithWindowBytes). The source must
// have exactly the bytes of the spec.
func (c *Client) UploadReader(ctx context.Context, spec *v1.TensorSpec, source io.Reader,
	opts ...CallOption) (*v1.Tensor, error) {
	o := collect(opts)
	w := readerWindow(source, c.options.windowBytes)
	return c.upload(ctx, &tensorContent{spec: spec, window: w, progress: o.progress}, o)
}

// Upload sends a matrix as a tensor of this kind.
func (c *Client) Upload(ctx context.Context, kind v1.TensorKind, matrix Matrix,
	opts ...CallOption) (*v1.Tensor, error) {
	if err := matrix.check("a matrix"); err != nil {
		return nil, err
	}
	return c.UploadBytes(ctx, matrix.spec(kind), matrix.Data, opts...)
}

// UploadMask sends a mask, for a warm start.
func (c *Client) UploadMask(ctx context.Context, mask *Mask, opts ...CallOption) (*v1.Tensor, error) {
	if err := mask.check("a mask"); err != nil {
		return nil, err
	}
	return c.UploadBytes(ctx, mask.spec(), mask.Bits, opts...)
}

func (c *Client) upload(ctx context.Context, content content, o callOptions) (*v1.Tensor, error) {
	run := uploadRun{c: c, content: content, id: o.id()}
	tensor, err := run.toTheEnd(ctx)
	if err != nil {
		if o.requestID == "" { // whoever named the request may come back to it
			run.abandon(asError(ctx, err))
		}
		return nil, err
	}
	return tensor, nil
}

// uploadRun follows an upload from its first byte to the tensor.
type uploadRun struct {
	c         *Client
	content   content
	id        string
	name      string
	committed int64
	farthest  int64 // a server that goes back and forth makes no progress
	tensor    *v1.Tensor
}

// progressed says whether the server has more than ever.
func (r *uploadRun) progressed() bool {
	if r.committed <= r.farthest {
		return false
	}
	r.farthest = r.committed
	return true
}

func (r *uploadRun) toTheEnd(ctx context.Context) (*v1.Tensor, error) {
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	b := r.c.newBackoff()
	r.farthest = r.committed
	for r.tensor == nil {
		if r.committed < 0 {
			return nil, refuse(codes.Internal, "PROTOCOL", "%s: the server's committed position must be at least 0; got %d",
				r.name, r.committed)
		}
		if err := r.content.moveTo(r.committed); err != nil {
			return nil, err
		}
		begin := time.Now()
		tensor, committed, err := r.content.send(r.c.outgoing(ctx), r.c, r.name, r.committed)
		b.postpone(time.Since(begin))
		if err == nil && (tensor != nil || committed > r.committed) {
			r.tensor, r.committed = tensor, committed
			if r.progressed() {
				b.reset()
			}
			continue
		}
		if err == nil { // it is tried again, but not at once and not for ever
			err = refuse(codes.Unavailable, "PROTOCOL", "%s: the server stays at %d", r.name, committed)
		}
		if err := r.recover(ctx, asError(ctx, err), b); err != nil {
			return nil, err
		}
	}
	return r.tensor, nil
}

// recover finds out where the server stands after a stream that ended with an error, where sending
// again can help.
func (r *uploadRun) recover(ctx context.Context, e *Error, b *backoff) error {
	forgotten := e.Reason == "UPLOAD_NOT_FOUND"
	again := e.transient() || e.Reason == "OFFSET_GAP" || forgotten ||
		(e.Code == codes.DataLoss && e.Reason == "CHECKSUM_MISMATCH")
	if ctx.Err() != nil || !again {
		return e
	}
	if err := r.c.wait(ctx, e, b); err != nil {
		return err
	}
	if err := r.locate(ctx, e); err != nil {
		return err
	}
	if r.progressed() {
		b.reset()
	}
	return nil
}

func (r *uploadRun) create(ctx context.Context) (*v1.CreateUploadResponse, error) {
	request := r.content.create()
	request.RequestId, request.Owner = r.id, r.c.options.owner
	return r.c.tensors().CreateUpload(ctx, request)
}

// open finds an upload of the same request id, or the tensor that it became, or makes one.
func (r *uploadRun) open(ctx context.Context) error {
	var response *v1.CreateUploadResponse
	err := r.c.call(ctx, "CreateUpload", func(ctx context.Context) (err error) {
		response, err = r.create(ctx)
		return err
	})
	if err != nil {
		return err
	}
	r.tensor = response.GetTensor()
	if upload := response.GetUpload(); upload != nil {
		r.name, r.committed = upload.GetName(), r.content.committed(upload)
	}
	return nil
}

// locate: the error says where the server stands where it refused a message. A broken connection
// does not, and may have hidden a success.
func (r *uploadRun) locate(ctx context.Context, e *Error) error {
	if text, ok := e.Metadata[r.content.key()]; ok {
		if committed, err := strconv.ParseInt(text, 10, 64); err == nil {
			r.committed = committed
			return nil
		}
	}
	upload, err := r.c.GetUpload(ctx, r.name)
	if err == nil {
		r.committed = r.content.committed(upload)
		return nil
	}
	if asError(ctx, err).Code == codes.NotFound {
		return r.open(ctx)
	}
	return err
}

// abandon gives the room of the upload back at once, after the error `why`. If that does not work, the
// server does it later for an unfinished upload; for a tensor only where it has a --tensor-ttl.
func (r *uploadRun) abandon(why *Error) {
	if r.name != "" && !r.gone(r.name) {
		return
	}
	lostAnswer := why.Code == codes.Canceled || why.Code == codes.Unavailable || why.Code == codes.DeadlineExceeded
	if r.name == "" && !lostAnswer {
		return // refused: nothing was made
	}
	// The answer that would tell was lost: there may be an upload, or a tensor that it has become. Twice, for
	// it may become one between two calls.
	for i := 0; i < 2; i++ {
		var found *v1.CreateUploadResponse
		err := r.once(func(ctx context.Context) (err error) {
			found, err = r.create(ctx)
			return err
		})
		if err != nil {
			return
		}
		if tensor := found.GetTensor(); tensor != nil {
			_ = r.once(func(ctx context.Context) error {
				_, err := r.c.tensors().DeleteTensor(ctx, &v1.DeleteTensorRequest{Name: tensor.GetName()})
				return err
			})
			return
		}
		if !r.gone(found.GetUpload().GetName()) {
			return
		}
	}
}

// gone deletes an upload, and says whether there was none: it was deleted before, or has become a tensor.
func (r *uploadRun) gone(upload string) bool {
	err := r.once(func(ctx context.Context) error {
		_, err := r.c.tensors().DeleteUpload(ctx, &v1.DeleteUploadRequest{Name: upload})
		return err
	})
	return status.Code(err) == codes.NotFound
}

// once makes one attempt of a second, whatever the caller's context says.
func (r *uploadRun) once(attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.c.outgoing(context.Background()), time.Second)
	defer cancel()
	return attempt(ctx)
}

// GetUpload is NOT_FOUND once the upload is finished, deleted or expired.
func (c *Client) GetUpload(ctx context.Context, name string) (*v1.Upload, error) {
	var upload *v1.Upload
	err := c.call(ctx, "GetUpload", func(ctx context.Context) (err error) {
		upload, err = c.tensors().GetUpload(ctx, &v1.GetUploadRequest{Name: name})
		return err
	})
	return upload, err
}

type tensorContent struct {
	spec     *v1.TensorSpec
	window   *window
	progress func(int64)
	total    uint32 // CRC32C of the bytes before `summed`
	summed   int64
}

func (t *tensorContent) create() *v1.CreateUploadRequest {
	return &v1.CreateUploadRequest{Content: &v1.CreateUploadRequest_Tensor{Tensor: t.spec}}
}
func (t *tensorContent) committed(upload *v1.Upload) int64 { return upload.GetCommittedSize() }
func (t *tensorContent) key() string                       { return "committed_size" }
func (t *tensorContent) moveTo(committed int64) error {
	// The source has the bytes that an earlier process has sent, too, and they count for the total.
	for committed > t.window.end() && !t.window.ended {
		if err := t.advance(t.window.end()); err != nil {
			return err
		}
	}
	if committed > t.window.end() {
		return refuse(codes.Internal, "PROTOCOL", "the server has %d bytes of %d", committed,
			t.window.end())
	}
	return t.advance(committed)
}

func (t *tensorContent) advance(offset int64) error {
	if err := t.window.moveTo(offset); err != nil {
		return err
	}
	if t.window.end() > t.summed {
		t.total = crc32.Update(t.total, castagnoli, t.window.from(t.summed))
		t.summed = t.window.end()
	}
	return nil
}

func (t *tensorContent) send(ctx context.Context, c *Client, upload string, committed int64) (
	*v1.Tensor, int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.tensors().WriteTensor(ctx)
	if err != nil {
		return nil, 0, err
	}
	request := &v1.WriteTensorRequest{Target: &v1.WriteTensorRequest_Upload{Upload: upload}}
	for offset := committed; ; {
		data := t.window.from(offset)
		if len(data) > c.options.chunkBytes {
			data = data[:c.options.chunkBytes]
		}
		if len(data) > 0 { // a source may turn out to have ended with the window before
			sum := crc32.Checksum(data, castagnoli)
			request.Chunk = &v1.Chunk{Offset: offset, Crc32C: sum, Data: data}
		}
		offset += int64(len(data))
		last := offset == t.window.end()
		if last && t.window.ended {
			request.Finish, request.TotalCrc32C = true, &t.total
		}
		if stream.Send(request) != nil { // CloseAndRecv says why
			break
		}
		if t.progress != nil {
			t.progress(offset)
		}
		if last {
			break
		}
		request = &v1.WriteTensorRequest{}
	}
	response, err := stream.CloseAndRecv()
	if err != nil {
		return nil, 0, err
	}
	if request.GetFinish() && response.GetTensor() == nil {
		return nil, 0, unfinished("WriteTensor")
	}
	return response.GetTensor(), response.GetCommittedSize(), nil
}
