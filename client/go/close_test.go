package sparsefw_test

import (
	"context"
	"io"
	"testing"
	"time"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// mute takes calls and never answers them.
type mute struct {
	fakeServer
	taken chan struct{}
}

func (m *mute) GetJob(ctx context.Context, _ *v1.GetJobRequest) (*v1.Job, error) {
	m.taken <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (m *mute) WatchJob(_ *v1.WatchJobRequest, stream v1.PruneService_WatchJobServer) error {
	m.taken <- struct{}{}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// isClosed reports an error that is not CLOSED, or that came late.
func isClosed(t *testing.T, what string, since time.Time, err error) {
	t.Helper()
	if took := time.Since(since); sparsefw.ReasonOf(err) != "CLOSED" || took > 5*time.Second {
		t.Errorf("%s: %v after %s", what, err, took)
	}
}

func TestAClosedClientTriesNothingAgain(t *testing.T) {
	client := dial(t, startFake(t, &fakeServer{}), sparsefw.WithRetry(sparsefw.RetryPolicy{
		Initial: 10 * time.Millisecond, Max: 10 * time.Millisecond, Multiplier: 1, GiveUpAfter: 20 * time.Second,
	}))
	must(t, client.Close())
	must(t, client.Close())
	start := time.Now()
	_, err := client.GetJob(ctx, "jobs/one")
	isClosed(t, "call", start, err)
	start = time.Now()
	_, err = client.Wait(ctx, "jobs/one", nil)
	isClosed(t, "wait", start, err)
	start = time.Now()
	_, err = client.ReadTensor(ctx, "tensors/mask", io.Discard)
	isClosed(t, "read", start, err)
	start = time.Now()
	_, err = client.Prune(ctx, smallLayer(), wanda(0.5), nil)
	isClosed(t, "prune", start, err)
}

func TestClosingEndsTheCallsThatAreUnderWay(t *testing.T) {
	for what, call := range map[string]func(*sparsefw.Client) error{
		"call": func(client *sparsefw.Client) error { _, err := client.GetJob(ctx, "jobs/one"); return err },
		"wait": func(client *sparsefw.Client) error { _, err := client.Wait(ctx, "jobs/one", nil); return err },
	} {
		server := &mute{taken: make(chan struct{}, 1)}
		seen := &retries{}
		client := dial(t, startFake(t, server), seen.option())
		failed := make(chan error, 1)
		go func() { failed <- call(client) }()
		<-server.taken
		start := time.Now()
		must(t, client.Close())
		isClosed(t, what, start, <-failed)
		if seen.count() > 0 {
			t.Errorf("%s: %d retries", what, seen.count())
		}
	}
}

// A server that went away, and a wait of an hour before the next look.
func TestClosingEndsAWait(t *testing.T) {
	server, waits := &fakeServer{}, make(chan struct{}, 1)
	client := dial(t, startFake(t, server), sparsefw.WithRetry(sparsefw.RetryPolicy{
		Initial: time.Hour, Max: time.Hour, Multiplier: 1, GiveUpAfter: 20 * time.Second,
	}), sparsefw.WithOnRetry(func(error, time.Duration) { waits <- struct{}{} }))
	server.lose("WatchJob")
	failed := make(chan error, 1)
	go func() {
		_, err := client.Wait(ctx, "jobs/one", nil)
		failed <- err
	}()
	<-waits
	start := time.Now()
	must(t, client.Close())
	isClosed(t, "wait", start, <-failed)
}
