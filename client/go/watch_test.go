package sparsefw_test

import (
	"context"
	"errors"
	"testing"
	"time"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// chatty sends many events at once, then heartbeats for a time, and then the end of the job.
type chatty struct {
	fakeServer
	events, heartbeats int
	sent               chan struct{}
}

func (c *chatty) WatchJob(_ *v1.WatchJobRequest, stream v1.PruneService_WatchJobServer) error {
	for i := 1; i <= c.events; i++ {
		job := c.job(v1.JobState_JOB_STATE_RUNNING)
		job.Revision = int64(i)
		if err := stream.Send(&v1.JobEvent{Job: job}); err != nil {
			return err
		}
	}
	c.sent <- struct{}{}
	for i := 0; i < c.heartbeats; i++ {
		time.Sleep(100 * time.Millisecond)
		beat := &v1.JobEvent{Kind: v1.JobEvent_KIND_HEARTBEAT, Job: c.job(v1.JobState_JOB_STATE_RUNNING)}
		if err := stream.Send(beat); err != nil {
			return err
		}
	}
	return c.fakeServer.WatchJob(nil, stream)
}

func TestAWatchEndsThoughEventsAreThere(t *testing.T) {
	server := &chatty{events: 100, sent: make(chan struct{}, 1)}
	client := dial(t, startFake(t, server), quick())
	for what, end := range map[string]func(*sparsefw.Watch, context.CancelFunc){
		"context": func(_ *sparsefw.Watch, cancel context.CancelFunc) { cancel() },
		"close":   func(watch *sparsefw.Watch, _ context.CancelFunc) { watch.Close() },
		"close elsewhere": func(watch *sparsefw.Watch, _ context.CancelFunc) {
			closed := make(chan struct{})
			go func() { watch.Close(); close(closed) }()
			<-closed
		},
	} {
		limited, cancel := context.WithCancel(ctx)
		watch := client.Watch(limited, "jobs/one", 0)
		if !watch.Next() {
			t.Fatalf("%s: %v", what, watch.Err())
		}
		<-server.sent
		time.Sleep(50 * time.Millisecond) // they arrive
		end(watch, cancel)
		if watch.Next() {
			t.Errorf("%s: revision %d", what, watch.Event().GetJob().GetRevision())
		}
		if err := watch.Err(); !errors.Is(err, context.Canceled) || sparsefw.ReasonOf(err) != "STOPPED" {
			t.Errorf("%s: %v", what, err)
		}
		watch.Close()
		cancel()
	}
}

func TestAnObserverThatTakesItsTimeIsNoSilence(t *testing.T) {
	server := &chatty{events: 2, heartbeats: 10, sent: make(chan struct{}, 10)}
	seen := &retries{}
	client := dial(t, startFake(t, server), quick(), seen.option(), sparsefw.WithWatchSilence(600*time.Millisecond))
	slow := true
	_, err := client.Wait(ctx, "jobs/one", func(event *v1.JobEvent) {
		if event.GetJob().GetRevision() == 2 && slow {
			slow = false
			time.Sleep(1500 * time.Millisecond)
		}
	})
	must(t, err)
	if seen.count() > 0 {
		t.Errorf("it was opened again: %v", seen.errors)
	}
}

// A server that says nothing is still noticed.
func TestSilenceOnAWatchOpensItAnew(t *testing.T) {
	server := &mute{taken: make(chan struct{}, 100)}
	seen := &retries{}
	client := dial(t, startFake(t, server), seen.option(), impatient(), sparsefw.WithWatchSilence(300*time.Millisecond))
	_, err := client.Wait(ctx, "jobs/one", nil)
	if sparsefw.ReasonOf(err) != "UNREACHABLE" {
		t.Errorf("%v", err)
	}
}
