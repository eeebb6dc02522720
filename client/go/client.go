package sparsefw

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// Client is a connection to a server.
type Client struct {
	address   string
	options   options
	endpoints *endpoints
}

// Dial connects to a server: "host:port", "unix:/path", or several with commas between them, of which
// the first that can be reached is used until its connection is lost. An IPv6 address has brackets:
// "[::1]:50051". Without an option for TLS the connection is plain text.
//
// Errors: CLIENT_ARGUMENT; UNREACHABLE, with what the first address said, when none answers within the
// connect timeout; that of the context.
func Dial(ctx context.Context, address string, opts ...Option) (*Client, error) {
	c := &Client{address: address, options: defaults()}
	for _, option := range opts {
		if err := option(&c.options); err != nil {
			return nil, err
		}
	}
	if c.options.traceparent == "" {
		c.options.traceparent = newTraceparent()
	}
	var err error
	if c.endpoints, err = newEndpoints(address, &c.options); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, c.options.connectTimeout)
	defer cancel()
	if c.endpoints.connect(limited) {
		return c, nil
	}
	e := c.ask(ctx)
	if e == nil {
		return c, nil
	}
	c.Close()
	if e.cause != nil {
		return nil, e
	}
	return nil, refuse(codes.Unavailable, "UNREACHABLE", "no server could be reached at %s within %s: %s", address,
		c.options.connectTimeout, explained(e.Message))
}

// ask is why the server cannot be reached, which only a call tells; nil where it answers after all.
func (c *Client) ask(ctx context.Context) *Error {
	limited, cancel := context.WithTimeout(c.outgoing(ctx), time.Second)
	defer cancel()
	_, err := c.jobs().GetServerInfo(limited, &v1.GetServerInfoRequest{})
	if err == nil {
		return nil
	}
	e := asError(ctx, err)
	if e.cause == nil && e.Reason != "" {
		return nil // a refusal is an answer
	}
	return e
}

// explained is what happened, without gRPC's words around it: connection error: desc = "transport: ...".
func explained(message string) string {
	if _, quoted, found := strings.Cut(message, "desc = "); found {
		if text, err := strconv.Unquote(quoted); err == nil {
			message = text
		}
	}
	message = strings.TrimPrefix(message, "transport: ")
	return strings.TrimPrefix(message, "Error while dialing ")
}

// Close ends the connection. Calls that are under way, and later ones, end with CLOSED.
func (c *Client) Close() error { return c.endpoints.close() }

// Address is what Dial was given.
func (c *Client) Address() string { return c.address }

// The clients of the address in use; another one may be by the next call.
func (c *Client) tensors() v1.TensorServiceClient { return c.endpoints.use().tensors }
func (c *Client) jobs() v1.PruneServiceClient     { return c.endpoints.use().jobs }

// outgoing adds what every call carries.
func (c *Client) outgoing(ctx context.Context) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", c.options.traceparent)
	if c.options.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.options.token)
	}
	return ctx
}
