package sparsefw

import (
	"context"
	"math/rand"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Attempts of a call that is not answered in time.
const attemptsInSilence = 3

// For a look at all addresses after a connection is lost.
const reconnect = time.Second

// RetryPolicy says how long and how often what failed for the moment is tried again.
type RetryPolicy struct {
	// The n-th wait in a row is drawn from [d/2, d], d = min(Max, Initial * Multiplier^n).
	Initial, Max time.Duration
	Multiplier   float64
	// Time without progress (a byte committed, an event received) after which the last error is
	// returned.
	GiveUpAfter time.Duration
}

// DefaultRetry is the policy of a client that is not given one.
var DefaultRetry = RetryPolicy{
	Initial: 100 * time.Millisecond, Max: 2 * time.Second, Multiplier: 2, GiveUpAfter: time.Minute,
}

var random = struct {
	sync.Mutex
	*rand.Rand
}{Rand: rand.New(rand.NewSource(time.Now().UnixNano()))}

type backoff struct {
	policy RetryPolicy
	giveUp time.Time
	base   time.Duration
}

func (c *Client) newBackoff() *backoff {
	b := &backoff{policy: c.options.retry}
	b.reset()
	return b
}

// reset: there was progress.
func (b *backoff) reset() {
	b.giveUp = time.Now().Add(b.policy.GiveUpAfter)
	b.base = b.policy.Initial
}

// postpone: an attempt took so long. Its time does not count as waiting: it may take longer than all trying
// again may.
func (b *backoff) postpone(worked time.Duration) { b.giveUp = b.giveUp.Add(worked) }

// next is the wait before the next attempt; false: the time is up.
func (b *backoff) next(serverDelay time.Duration) (time.Duration, bool) {
	now := time.Now()
	if !now.Before(b.giveUp) {
		return 0, false
	}
	random.Lock()
	share := 0.5 + random.Float64()/2
	random.Unlock()
	// Jitter goes on top of what the server asked for: clients that were all refused at once must not
	// all come back at once.
	delay := serverDelay + time.Duration(float64(b.base)*share)
	if longer := float64(b.base) * b.policy.Multiplier; longer < float64(b.policy.Max) {
		b.base = time.Duration(longer)
	} else {
		b.base = b.policy.Max
	}
	// The last attempt is at the time to give up, however long the wait would be.
	if left := b.giveUp.Sub(now); delay > left || delay < serverDelay { // or beyond what a Duration holds
		delay = left
	}
	return delay, true
}

func closed() *Error { return refuse(codes.Canceled, "CLOSED", "the client is closed") }

// wait returns nil when the next attempt is due, and the error to return otherwise.
func (c *Client) wait(ctx context.Context, err *Error, b *backoff) error {
	select {
	case <-c.endpoints.done: // gRPC calls that CANCELLED, as a server that is being shut down does
		return closed()
	default:
	}
	delay, again := b.next(err.RetryDelay)
	if !again {
		last := *err
		last.Message += "; gave up after " + b.policy.GiveUpAfter.String() + " without progress"
		return &last
	}
	if c.options.onRetry != nil {
		c.options.onRetry(err, delay)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return asError(ctx, ctx.Err())
	case <-c.endpoints.done:
		return closed()
	case <-timer.C:
	}
	if err.Code == codes.Unavailable && err.Reason == "" && len(c.endpoints.all) > 1 {
		// The connection was lost. The next attempt looks again.
		limited, cancel := context.WithTimeout(ctx, reconnect)
		defer cancel()
		c.endpoints.connect(limited)
	}
	return nil
}

// remove is call for a deletion. Where an attempt has failed, its answer may have been lost: it may be what
// deleted the thing that is not found now.
func (c *Client) remove(ctx context.Context, method string, once func(context.Context) error) error {
	again := false
	return c.call(ctx, method, func(ctx context.Context) error {
		err := once(ctx)
		if again && status.Code(err) == codes.NotFound {
			return nil
		}
		// A refusal of the server itself, which has a reason, has deleted nothing.
		e := asError(ctx, err)
		again = again || e.cause != nil || e.Reason == ""
		return err
	})
}

// call makes a call that is safe to repeat, until it succeeds, fails for good, or trying again took
// too long. One that is not answered in time is made three times.
func (c *Client) call(ctx context.Context, method string, once func(context.Context) error) error {
	b, silent := c.newBackoff(), 0
	for {
		attempt, cancel := context.WithTimeout(c.outgoing(ctx), c.options.callTimeout)
		err := once(attempt)
		cancel()
		if err == nil {
			return nil
		}
		e := asError(ctx, err)
		switch {
		case e.cause != nil: // the caller's context ended
			return e
		case e.Code == codes.DeadlineExceeded && e.Reason == "":
			silent++
			e.Message = c.address + ": no answer to " + method + " within " +
				c.options.callTimeout.String()
			// Counted, not timed: one attempt may take longer than all trying again may.
			if silent == attemptsInSilence {
				return e
			}
			if c.options.onRetry != nil {
				c.options.onRetry(e, 0)
			}
			b.reset()
		case !e.transient():
			return e
		default:
			if err := c.wait(ctx, e, b); err != nil {
				return err
			}
		}
	}
}
