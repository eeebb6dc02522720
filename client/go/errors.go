package sparsefw

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is an error of the server or of the connection to it.
type Error struct {
	Code codes.Code
	// For people. A server's is Printable, and so is Error().
	Message string
	// Why, for programs: "SHAPE_MISMATCH". Empty for errors that gRPC itself makes.
	Reason string
	// What belongs to the reason: {"field": "weight"}.
	Metadata map[string]string
	// How long the server asks to wait before the call is made again; 0: it does not say.
	RetryDelay time.Duration
	cause      error
}

// Kinds of errors, for errors.Is: every Error with that code is one.
var (
	ErrInvalidArgument   = &Error{Code: codes.InvalidArgument}
	ErrNotFound          = &Error{Code: codes.NotFound}
	ErrFailedPrecond     = &Error{Code: codes.FailedPrecondition}
	ErrResourceExhausted = &Error{Code: codes.ResourceExhausted}
	ErrUnauthenticated   = &Error{Code: codes.Unauthenticated}
	ErrPermissionDenied  = &Error{Code: codes.PermissionDenied}
	ErrDataLoss          = &Error{Code: codes.DataLoss}
	ErrUnavailable       = &Error{Code: codes.Unavailable}
)

func (e *Error) Error() string {
	if e.Reason == "" {
		return Printable(fmt.Sprintf("%s: %s", e.Code, e.Message))
	}
	return Printable(fmt.Sprintf("%s (%s): %s", e.Code, e.Reason, e.Message))
}

// Is reports whether e has the code of target, and its reason where target has one.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && e.Code == other.Code && (other.Reason == "" || e.Reason == other.Reason)
}

// Unwrap gives context.Canceled or context.DeadlineExceeded where the caller's context ended the
// call.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus makes status.FromError and status.Code work.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// ReasonOf is the reason of an error of the server, also of a wrapped one; else empty.
func ReasonOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func refuse(code codes.Code, reason, format string, args ...interface{}) *Error {
	return &Error{Code: code, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func argument(format string, args ...interface{}) *Error {
	return refuse(codes.InvalidArgument, "CLIENT_ARGUMENT", format, args...)
}

func fromStatus(proto *spb.Status) *Error {
	e := &Error{Code: codes.Code(proto.GetCode()), Message: Printable(proto.GetMessage())}
	for _, detail := range status.FromProto(proto).Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			e.Reason, e.Metadata = detail.GetReason(), detail.GetMetadata()
		case *errdetails.RetryInfo:
			if delay := detail.GetRetryDelay(); delay.GetSeconds() >= 0 && delay.IsValid() {
				e.RetryDelay = delay.AsDuration() // at most what a Duration holds
			}
		}
	}
	return e
}

// A server's timer may go off before the caller's own, which runs out at the same time.
const deadlineSkew = 100 * time.Millisecond

// asError is the Error of what gRPC returned; of a context that ended, that.
func asError(ctx context.Context, err error) *Error {
	if cause := ctx.Err(); cause != nil {
		return stopped(cause)
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	e = fromStatus(status.Convert(err).Proto())
	deadline, limited := ctx.Deadline()
	if limited && e.Code == codes.DeadlineExceeded && e.Reason == "" && time.Until(deadline) < deadlineSkew {
		return stopped(context.DeadlineExceeded)
	}
	return e
}

// stopped is the error of a call whose context ended.
func stopped(cause error) *Error {
	code := codes.Canceled
	if errors.Is(cause, context.DeadlineExceeded) {
		code = codes.DeadlineExceeded
	}
	return &Error{Code: code, Reason: "STOPPED", Message: cause.Error(), cause: cause}
}

// transient says whether the same call can succeed later.
func (e *Error) transient() bool {
	switch e.Code {
	case codes.Unavailable:
		return true
	case codes.ResourceExhausted:
		return e.RetryDelay > 0
	}
	// Errors of the server have a reason. Without one these come from gRPC: a server that is being
	// shut down cancels its calls, and a connection that breaks inside a response is INTERNAL.
	if e.Reason != "" {
		return false
	}
	return e.Code == codes.Canceled ||
		(e.Code == codes.Internal && strings.Contains(e.Message, "RST_STREAM"))
}

// JobError is the error of a job that did not succeed.
type JobError struct {
	Job string // its name
	Err *Error
}

func (e *JobError) Error() string { return Printable(fmt.Sprintf("%s: %v", e.Job, e.Err)) }

// Unwrap gives the *Error.
func (e *JobError) Unwrap() error { return e.Err }
