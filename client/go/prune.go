package sparsefw

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// How long an interrupted Prune takes to clean up after itself.
const cleanUp = 5 * time.Second

// Result is a job that has ended and what it made.
type Result struct {
	Job  *v1.Job
	Mask *Mask
	// Pruned or updated, in the weight's dtype, where the spec asks for it (ReturnPrunedWeight).
	Weight *Matrix
}

// Losses of the result.
func (r *Result) Losses() *v1.Losses { return r.Job.GetResult().GetLosses() }

// Prune uploads a layer, runs one job on it and reads the result. Options are checked before anything is
// sent. What was uploaded for it is deleted afterwards, and a job that was left is cancelled. `observer` may
// be nil. A job that fails is a *JobError.
//
// With WithRequestID it can be called again after a crash or an error, until it has given a result or a
// *JobError, and goes on where it was. Until then the job goes on, and what was uploaded stays.
func (c *Client) Prune(ctx context.Context, layer Layer, spec *v1.JobSpec, observer func(*v1.JobEvent),
	opts ...CallOption) (*Result, error) {
	if spec == nil {
		return nil, argument("a job must have a spec; got nil")
	}
	p := pruning{c: c, layer: layer, spec: proto.Clone(spec).(*v1.JobSpec), options: collect(opts)}
	p.id = p.options.id()
	if err := p.settle(); err != nil {
		return nil, err
	}
	if err := p.check(ctx); err != nil {
		return nil, err
	}
	result, err := p.run(ctx, observer)
	p.leave(err)
	return result, err
}

type pruning struct {
	c       *Client
	layer   Layer
	spec    *v1.JobSpec
	options callOptions
	made    []string // tensors of this call alone
	id      string   // of the job's request
	asked   bool     // for the job: there may be one, though its answer was lost
	job     *v1.Job
}

// within: the same call again finds what this one has made.
func (p *pruning) within(field string) []CallOption {
	if p.options.requestID == "" {
		return nil
	}
	return []CallOption{WithRequestID(p.options.requestID + "/" + field)}
}

func (p *pruning) upload(ctx context.Context) error {
	l := &p.layer
	take := func(tensor *v1.Tensor, err error) (string, error) {
		if err == nil {
			p.made = append(p.made, tensor.GetName())
		}
		return tensor.GetName(), err
	}
	var err error
	if l.Weight.given() {
		p.spec.Weight, err = take(p.c.Upload(ctx, v1.TensorKind_TENSOR_KIND_WEIGHT, l.Weight, p.within("weight")...))
	}
	if err == nil && l.Gram.given() {
		p.spec.Gram, err = take(p.c.Upload(ctx, v1.TensorKind_TENSOR_KIND_GRAM, l.Gram, p.within("gram")...))
	}
	if err == nil && l.Activations.given() {
		p.spec.Gram, err = take(p.c.Gram(ctx, l.Activations, p.within("activations")...))
	}
	if err == nil && l.WarmStart != nil {
		var name string
		name, err = take(p.c.UploadMask(ctx, l.WarmStart, p.within("warm_start")...))
		if p.spec.WarmStart == nil {
			p.spec.WarmStart = &v1.WarmStart{}
		}
		p.spec.WarmStart.Source = &v1.WarmStart_Mask{Mask: name}
	}
	return err
}

func (p *pruning) run(ctx context.Context, observer func(*v1.JobEvent)) (*Result, error) {
	if err := p.upload(ctx); err != nil {
		return nil, err
	}
	p.asked = true
	job, err := p.c.CreateJob(ctx, p.spec, WithRequestID(p.id))
	if err != nil {
		return nil, err
	}
	p.job = job
	ended, err := p.c.Wait(ctx, job.GetName(), observer)
	if err != nil {
		return nil, err
	}
	p.job = ended
	if w := p.layer.Weight; w.given() && !sameDims(ended.GetShape(), w.shape()) {
		return nil, refuse(codes.Internal, "PROTOCOL", "%s: must have the layer's shape %v; the server says %v",
			ended.GetName(), w.shape(), ended.GetShape())
	}
	return p.c.Result(ctx, ended)
}

// Result reads the mask, and the pruned weight where there is one, of a job that has ended. A job that
// was cancelled has a result if there was a mask by then.
func (c *Client) Result(ctx context.Context, job *v1.Job) (*Result, error) {
	result := &Result{Job: job}
	if job.GetState() == v1.JobState_JOB_STATE_FAILED {
		return nil, &JobError{job.GetName(), fromStatus(job.GetError())}
	}
	if !Ended(job.GetState()) {
		return nil, argument("%s must have ended; it is %s", job.GetName(), ShortName(job.GetState()))
	}
	made := job.GetResult()
	if made.GetMask() == "" {
		e := refuse(codes.Canceled, "CANCELLED", "the job was cancelled before there was a mask")
		if job.GetError().GetCode() != 0 {
			e = fromStatus(job.GetError())
		}
		return nil, &JobError{job.GetName(), e}
	}
	if len(job.GetShape()) != 2 {
		return nil, refuse(codes.Internal, "PROTOCOL", "%s: must have two dims; the server says %v",
			job.GetName(), job.GetShape())
	}
	mask, err := c.readMask(ctx, made.GetMask(), &v1.TensorSpec{Dims: job.GetShape()})
	if err != nil {
		return nil, err
	}
	result.Mask = mask
	if job.GetSpec().GetReturnPrunedWeight() && made.GetPrunedWeight() == "" {
		return nil, refuse(codes.Internal, "PROTOCOL", "%s: must have a pruned weight; the server names none",
			job.GetName())
	}
	if made.GetPrunedWeight() != "" {
		weight, err := c.readMatrix(ctx, made.GetPrunedWeight(), &v1.TensorSpec{
			Kind: v1.TensorKind_TENSOR_KIND_PRUNED_WEIGHT, Dims: job.GetShape(),
		})
		if err != nil {
			return nil, err
		}
		result.Weight = &weight
	}
	return result, nil
}

// leave cancels a job that nobody comes back to and deletes what was made for it. `err` is that of run.
func (p *pruning) leave(err error) {
	var failed *JobError
	if p.options.requestID != "" && err != nil && !errors.As(err, &failed) {
		return // the same call goes on with it: without its tensors, the server would refuse it
	}
	limited, cancel := context.WithTimeout(context.Background(), cleanUp)
	defer cancel()
	if p.job == nil && p.asked && !isRefusal(err) {
		p.find(limited)
	}
	if p.job != nil && !Ended(p.job.GetState()) {
		if _, err := p.c.CancelJob(limited, p.job.GetName()); err == nil {
			_, _ = p.c.Wait(limited, p.job.GetName(), nil) // it reads the tensors until then
		}
	}
	for _, name := range p.made {
		_ = p.c.DeleteTensor(limited, name) // else it stays, unless the server has a --tensor-ttl
	}
}

// find: the same request again tells the job of a CreateJob whose answer was lost. Half of the time is left for
// what was uploaded.
func (p *pruning) find(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, cleanUp/2)
	defer cancel()
	if job, err := p.c.CreateJob(limited, p.spec, WithRequestID(p.id)); err == nil {
		p.job = job
	}
}

// isRefusal: the server itself refused, so nothing was made. The other reasons are this client's, or of a last
// attempt after one whose answer may have been lost.
func isRefusal(err error) bool {
	var e *Error
	if errors.As(err, &e) && e.transient() {
		return false
	}
	switch ReasonOf(err) {
	case "", "STOPPED", "CLOSED", "PROTOCOL", "UNREACHABLE":
		return false
	}
	return true
}
