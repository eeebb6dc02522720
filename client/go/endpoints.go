package sparsefw

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	gbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

const (
	// The head start of an address over the next one, if it does not answer at all. One that
	// refuses gets none.
	headStart = 250 * time.Millisecond
	// Between two looks at all addresses that are tried.
	look = 10 * time.Millisecond
)

// endpoint is one address, connected once it is tried.
type endpoint struct {
	address string
	conn    *grpc.ClientConn
	tensors v1.TensorServiceClient
	jobs    v1.PruneServiceClient
}

// endpoints are the addresses of a server: the first that can be reached is used until its connection is
// lost; then that one again, or else the first that can be reached. gRPC's own choice among addresses
// gives one that takes connections and never answers all of the time.
type endpoints struct {
	options *options
	mutex   sync.Mutex
	all     []*endpoint
	current *endpoint
	closed  bool
	done    chan struct{} // closed with it
}

func newEndpoints(address string, options *options) (*endpoints, error) {
	e := &endpoints{options: options, done: make(chan struct{})}
	addresses, err := splitAddresses(address)
	if err != nil {
		return nil, err
	}
	for _, one := range addresses {
		if options.token != "" && options.tls == nil && !isLocal(one) {
			return nil, argument("a token is only sent over TLS or to this machine: the connection to %s would be "+
				"plain text", one)
		}
		e.all = append(e.all, &endpoint{address: one})
	}
	if err := e.dial(e.all[0]); err != nil {
		return nil, err
	}
	e.current = e.all[0]
	return e, nil
}

// dial makes the connection of an address; it does not wait for it.
func (e *endpoints) dial(one *endpoint) error {
	if one.conn != nil {
		// Later versions of gRPC wait for a call after a connection is lost.
		if idle, ok := interface{}(one.conn).(interface{ Connect() }); ok {
			idle.Connect()
		}
		return nil
	}
	opts := []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: gbackoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: e.options.connectTimeout,
		}),
		// A peer that vanished without closing its connection is noticed within a minute.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 40 * time.Second, Timeout: 20 * time.Second,
		}),
	}
	if e.options.tls != nil {
		opts = append(opts, grpc.WithTransportCredentials(credentials.NewTLS(e.options.tls.Clone())))
	} else {
		opts = append(opts, grpc.WithInsecure())
	}
	conn, err := grpc.Dial(target(one.address), opts...)
	if err != nil {
		return argument("%q must be the address of a server: %v", one.address, err)
	}
	one.conn = conn
	one.tensors, one.jobs = v1.NewTensorServiceClient(conn), v1.NewPruneServiceClient(conn)
	return nil
}

func (e *endpoints) use() *endpoint {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.current
}

// connect waits until an address is connected, which is then in use; false: until the context ended or close.
// The one in use comes first, then the others in order.
func (e *endpoints) connect(ctx context.Context) bool {
	begin := time.Now()
	for !e.try(begin) {
		select {
		case <-ctx.Done():
			return false
		case <-e.done:
			return false
		case <-time.After(look):
		}
	}
	return true
}

func (e *endpoints) try(begin time.Time) bool {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	order := []*endpoint{e.current}
	for _, one := range e.all {
		if one != e.current {
			order = append(order, one)
		}
	}
	due := begin
	for _, one := range order {
		if time.Now().Before(due) || e.closed {
			return false
		}
		if e.dial(one) != nil {
			continue // not an address; the others may be
		}
		switch one.conn.GetState() {
		case connectivity.Ready:
			e.current = one
			return true
		case connectivity.TransientFailure:
		default:
			due = due.Add(headStart)
		}
	}
	return false
}

func (e *endpoints) close() error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	close(e.done) // before the connections: what they end is not tried again
	var result error
	for _, one := range e.all {
		if one.conn != nil {
			if err := one.conn.Close(); err != nil {
				result = err
			}
		}
	}
	return result
}
