package sparsefw

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// Watch is the events of one job, over as many streams as it takes:
//
//	watch := client.Watch(ctx, job.Name, 0)
//	defer watch.Close()
//	for watch.Next() {
//		event := watch.Event()
//	}
//	if err := watch.Err(); err != nil { ... }
//
// It ends with the end of the job. Leaving it never cancels the job. For one goroutine at a time, but any may
// call Close: Next then ends with STOPPED.
type Watch struct {
	c       *Client
	ctx     context.Context
	cancel  context.CancelFunc
	request *v1.WatchJobRequest
	backoff *backoff
	stream  *watchStream
	event   *v1.JobEvent
	err     error
	ended   bool
}

// Watch begins with the job as it is, or, where `after` is a revision that was seen, with every change of
// state since.
func (c *Client) Watch(ctx context.Context, job string, after int64) *Watch {
	ctx, cancel := context.WithCancel(ctx)
	interval := c.options.watchSilence / 3
	if day := 24 * time.Hour; interval > day { // the server takes a day for "never"
		interval = day
	}
	return &Watch{
		c: c, ctx: ctx, cancel: cancel, backoff: c.newBackoff(),
		request: &v1.WatchJobRequest{
			Name: job, AfterRevision: after, HeartbeatInterval: durationpb.New(interval),
		},
	}
}

// Close ends the watch; the job goes on.
func (w *Watch) Close() { w.cancel() }

// Event is the one that Next has found.
func (w *Watch) Event() *v1.JobEvent { return w.event }

// Err is why Next returned false: nil after the end of the job.
func (w *Watch) Err() error { return w.err }

// Next waits for an event. Heartbeats are not shown.
func (w *Watch) Next() bool {
	for w.err == nil && !w.ended {
		// gRPC first gives what has arrived, however long ago the context ended.
		if cause := w.ctx.Err(); cause != nil {
			w.err = stopped(cause)
			if w.stream != nil {
				w.stream.close()
			}
			break
		}
		if w.stream == nil {
			w.stream = w.open()
		}
		event, err := w.stream.next()
		if err != nil {
			w.broken(err)
			continue
		}
		if event.GetJob().GetRevision() > w.request.AfterRevision {
			w.request.AfterRevision = event.GetJob().GetRevision()
		}
		w.ended = Ended(event.GetJob().GetState())
		if w.ended {
			w.stream.close()
		}
		if event.GetKind() != v1.JobEvent_KIND_HEARTBEAT || w.ended {
			w.event = event
			return true
		}
	}
	return false
}

// broken opens the watch again, or sets err.
func (w *Watch) broken(err error) {
	heard := w.stream.heard
	w.stream.close()
	w.stream = nil
	if errors.Is(err, io.EOF) {
		// A server may end a watch at any time. That is no error, yet waiting keeps one that does so at
		// once from making this a busy loop.
		err = refuse(codes.Unavailable, "PROTOCOL", "the watch of %s ended before the job did",
			w.request.Name)
	}
	e := asError(w.ctx, err)
	switch {
	case w.ctx.Err() != nil:
		w.err = e
	// Only as the first answer: after an event it would begin the same stream again for ever.
	case e.Reason == "REVISION_UNKNOWN" && w.request.AfterRevision != 0 && !heard:
		w.request.AfterRevision = 0 // the job is read anew
	case !e.transient():
		w.err = e
	default:
		if heard {
			w.backoff.reset()
		}
		w.err = w.c.wait(w.ctx, e, w.backoff)
	}
}

// watchStream is one call of WatchJob, cancelled when nothing comes on it.
type watchStream struct {
	client  v1.PruneService_WatchJobClient
	failed  error
	cancel  context.CancelFunc
	silence time.Duration
	guard   *time.Timer
	silent  int32 // set by the guard
	heard   bool
}

func (w *Watch) open() *watchStream {
	ctx, cancel := context.WithCancel(w.c.outgoing(w.ctx))
	s := &watchStream{cancel: cancel, silence: w.c.options.watchSilence}
	s.guard = time.AfterFunc(s.silence, func() {
		atomic.StoreInt32(&s.silent, 1)
		cancel()
	})
	s.client, s.failed = w.c.jobs().WatchJob(ctx, w.request)
	s.guard.Stop()
	return s
}

// next waits for an event. The guard runs meanwhile, but not while the caller works on one.
func (s *watchStream) next() (*v1.JobEvent, error) {
	err := s.failed
	var event *v1.JobEvent
	if err == nil {
		s.guard.Reset(s.silence)
		event, err = s.client.Recv()
		s.guard.Stop()
	}
	if err == nil {
		s.heard = true
		return event, nil
	}
	if atomic.LoadInt32(&s.silent) == 1 {
		return nil, refuse(codes.Unavailable, "UNREACHABLE", "nothing came on a watch for %s", s.silence)
	}
	return nil, err
}

func (s *watchStream) close() {
	s.guard.Stop()
	s.cancel()
}

// Wait follows a job to its end and returns it, whatever its state. `observer` may be nil.
func (c *Client) Wait(ctx context.Context, job string, observer func(*v1.JobEvent)) (*v1.Job, error) {
	watch := c.Watch(ctx, job, 0)
	defer watch.Close()
	for watch.Next() {
		if observer != nil {
			observer(watch.Event())
		}
	}
	if watch.Err() != nil {
		return nil, watch.Err()
	}
	return watch.Event().GetJob(), nil
}
