// The Go client as a program that is told what to do: see tests/conformance/driver.py for the protocol.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

type request struct {
	ID                                          int64
	Op, Client, Name, File, Kind, Server, Token string
	Weight, Gram, Method                        string
	RequestID                                   string  `json:"request_id"`
	TLSCA                                       string  `json:"tls_ca"`
	TLSCert                                     string  `json:"tls_cert"`
	TLSKey                                      string  `json:"tls_key"`
	WeightFile                                  string  `json:"weight_file"`
	ActivationsFile                             string  `json:"activations_file"`
	ConnectTimeout                              float64 `json:"connect_timeout"`
	CallTimeout                                 float64 `json:"call_timeout"`
	WatchSilence                                float64 `json:"watch_silence"`
	GiveUpAfter                                 float64 `json:"give_up_after"`
	ChunkBytes                                  int     `json:"chunk_bytes"`
	Shape                                       []int
	DIn                                         int `json:"d_in"`
	After                                       int64
	Sparsity                                    *float64
	Iterations                                  int64
	ReportEvery                                 int64 `json:"report_every"`
	Deadline                                    float64
}

type object = map[string]interface{}

var (
	output  sync.Mutex
	mutex   sync.Mutex
	clients = map[string]*sparsefw.Client{}
	ctx     = context.Background()
)

func show(line object) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(text))
}

// As the other drivers spell them.
var codeNames = map[codes.Code]string{
	codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED",
	codes.OutOfRange: "OUT_OF_RANGE", codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL",
	codes.Unavailable: "UNAVAILABLE", codes.DataLoss: "DATA_LOSS",
	codes.Unauthenticated: "UNAUTHENTICATED",
}

func errorOf(err error) object {
	var e *sparsefw.Error
	if !errors.As(err, &e) {
		return object{"code": "UNKNOWN", "reason": "", "metadata": object{}, "message": err.Error()}
	}
	line := object{
		"code": codeNames[e.Code], "reason": e.Reason, "metadata": e.Metadata, "message": e.Message,
	}
	if e.Metadata == nil {
		line["metadata"] = object{}
	}
	if e.RetryDelay > 0 {
		line["retry_delay"] = e.RetryDelay.Seconds()
	}
	return line
}

func describeTensor(tensor *v1.Tensor, err error) (object, error) {
	return object{
		"name": tensor.GetName(), "byte_size": tensor.GetByteSize(),
		"tokens": tensor.GetSpec().GetTokenCount(),
	}, err
}

func kindOf(kind string) v1.TensorKind {
	if kind == "gram" {
		return v1.TensorKind_TENSOR_KIND_GRAM
	}
	return v1.TensorKind_TENSOR_KIND_WEIGHT
}

func namesOf[T interface{ GetName() string }](listed []T, err error) (object, error) {
	names := []string{}
	for _, one := range listed {
		names = append(names, one.GetName())
	}
	return object{"names": names}, err
}

func describeJob(c *sparsefw.Client, job *v1.Job, err error) (object, error) {
	if err != nil {
		return nil, err
	}
	line := object{
		"name": job.GetName(), "state": sparsefw.ShortName(job.GetState()), "revision": job.GetRevision(),
		"attempts": job.GetAttempts(), "mask": job.GetResult().GetMask(),
		"kept": job.GetResult().GetKeptCount(),
	}
	if job.GetError().GetCode() != 0 {
		_, err := c.Result(ctx, job)
		line["error"] = errorOf(err)
	}
	return line, nil
}

func (r *request) spec() *v1.JobSpec {
	sparsity := 0.5
	if r.Sparsity != nil {
		sparsity = *r.Sparsity
	}
	spec := &v1.JobSpec{
		Weight: r.Weight, Gram: r.Gram, Method: v1.Method_METHOD_SPARSEFW, Pattern: sparsefw.PerRow(sparsity),
	}
	if r.Method == "wanda" {
		spec.Method = v1.Method_METHOD_WANDA
	}
	if r.Iterations != 0 || r.ReportEvery != 0 {
		spec.Sparsefw = &v1.SparseFwOptions{}
	}
	if r.Iterations != 0 {
		spec.Sparsefw.Iterations = &r.Iterations
	}
	if r.ReportEvery != 0 {
		spec.Sparsefw.ReportEvery = &r.ReportEvery
	}
	if r.Deadline != 0 {
		spec.Deadline = durationpb.New(seconds(r.Deadline))
	}
	return spec
}

func seconds(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }

func (r *request) connect() error {
	policy := sparsefw.RetryPolicy{
		Initial: 50 * time.Millisecond, Max: 500 * time.Millisecond, Multiplier: 2, GiveUpAfter: time.Minute,
	}
	if r.GiveUpAfter != 0 {
		policy.GiveUpAfter = seconds(r.GiveUpAfter)
	}
	opts := []sparsefw.Option{
		sparsefw.WithRetry(policy), sparsefw.WithToken(r.Token),
		sparsefw.WithOnRetry(func(err error, wait time.Duration) {
			line := errorOf(err)
			line["wait"] = wait.Seconds()
			show(object{"client": r.Client, "retry": line})
		}),
	}
	for limit, option := range map[*float64]func(time.Duration) sparsefw.Option{
		&r.ConnectTimeout: sparsefw.WithConnectTimeout, &r.CallTimeout: sparsefw.WithCallTimeout,
		&r.WatchSilence: sparsefw.WithWatchSilence,
	} {
		if *limit != 0 {
			opts = append(opts, option(seconds(*limit)))
		}
	}
	if r.ChunkBytes != 0 {
		opts = append(opts, sparsefw.WithChunkBytes(r.ChunkBytes))
	}
	if r.TLSCA != "" {
		opts = append(opts, sparsefw.WithTLSFiles(r.TLSCA, r.TLSCert, r.TLSKey))
	}
	client, err := sparsefw.Dial(ctx, r.Server, opts...)
	if err == nil {
		mutex.Lock()
		defer mutex.Unlock()
		clients[r.Client] = client
	}
	return err
}

func (r *request) named() []sparsefw.CallOption {
	if r.RequestID == "" {
		return nil
	}
	return []sparsefw.CallOption{sparsefw.WithRequestID(r.RequestID)}
}

func (r *request) run() (object, error) {
	if r.Op == "connect" {
		return object{}, r.connect()
	}
	mutex.Lock()
	c := clients[r.Client]
	mutex.Unlock()
	switch r.Op {
	case "close":
		return object{}, c.Close()
	case "info":
		_, err := c.ServerInfo(ctx)
		return object{}, err
	case "upload", "gram":
		return r.upload(c)
	case "read":
		var data bytes.Buffer
		tensor, err := c.ReadTensor(ctx, r.Name, &data)
		if err == nil {
			err = os.WriteFile(r.File, data.Bytes(), 0o644)
		}
		return describeTensor(tensor, err)
	case "get_tensor":
		return describeTensor(c.GetTensor(ctx, r.Name))
	case "list_tensors":
		filter := sparsefw.TensorFilter{}
		if r.Kind != "" {
			filter.Kinds = []v1.TensorKind{kindOf(r.Kind)}
		}
		return namesOf(c.ListTensors(ctx, filter))
	case "list_uploads":
		return namesOf(c.ListUploads(ctx, 0))
	case "delete_upload":
		return object{}, c.DeleteUpload(ctx, r.Name)
	case "delete_tensor":
		return object{}, c.DeleteTensor(ctx, r.Name)
	}
	return r.runJob(c)
}

func (r *request) upload(c *sparsefw.Client) (object, error) {
	data, err := os.ReadFile(r.File)
	if err != nil {
		return nil, err
	}
	if r.Op == "gram" {
		tokens := len(data) / 4 / r.DIn
		matrix := sparsefw.Matrix{Rows: tokens, Cols: r.DIn, DType: v1.DataType_DATA_TYPE_F32, Data: data}
		return describeTensor(c.Gram(ctx, matrix, r.named()...))
	}
	kind := kindOf(r.Kind)
	matrix := sparsefw.Matrix{Rows: r.Shape[0], Cols: r.Shape[1], DType: v1.DataType_DATA_TYPE_F32, Data: data}
	return describeTensor(c.Upload(ctx, kind, matrix, r.named()...))
}

func (r *request) runJob(c *sparsefw.Client) (object, error) {
	switch r.Op {
	case "create_job":
		job, err := c.CreateJob(ctx, r.spec(), r.named()...)
		return describeJob(c, job, err)
	case "get_job":
		job, err := c.GetJob(ctx, r.Name)
		return describeJob(c, job, err)
	case "cancel_job":
		job, err := c.CancelJob(ctx, r.Name)
		return describeJob(c, job, err)
	case "delete_job":
		return object{}, c.DeleteJob(ctx, r.Name)
	case "watch":
		watch := c.Watch(ctx, r.Name, r.After)
		defer watch.Close()
		for watch.Next() {
			event := watch.Event()
			show(object{"id": r.ID, "event": object{
				"kind": sparsefw.ShortName(event.GetKind()), "state": sparsefw.ShortName(event.GetJob().GetState()),
				"revision": event.GetJob().GetRevision(),
			}})
		}
		return describeJob(c, watch.Event().GetJob(), watch.Err())
	case "prune":
		return r.prune(c)
	}
	return nil, fmt.Errorf("no such op: %s", r.Op)
}

func (r *request) prune(c *sparsefw.Client) (object, error) {
	weight, err := os.ReadFile(r.WeightFile)
	if err != nil {
		return nil, err
	}
	activations, err := os.ReadFile(r.ActivationsFile)
	if err != nil {
		return nil, err
	}
	rows, cols := r.Shape[0], r.Shape[1]
	result, err := c.Prune(ctx, sparsefw.Layer{
		Weight:      sparsefw.Matrix{Rows: rows, Cols: cols, DType: v1.DataType_DATA_TYPE_F32, Data: weight},
		Activations: sparsefw.Matrix{Rows: len(activations) / 4 / cols, Cols: cols, DType: v1.DataType_DATA_TYPE_F32, Data: activations},
	}, r.spec(), nil)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(r.File, result.Mask.Bits, 0o644); err != nil {
		return nil, err
	}
	return describeJob(c, result.Job, nil)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r := &request{}
		if err := json.Unmarshal(lines.Bytes(), r); err != nil {
			panic(err)
		}
		go func() {
			result, err := r.run()
			if err != nil {
				show(object{"id": r.ID, "error": errorOf(err)})
			} else {
				show(object{"id": r.ID, "ok": result})
			}
		}()
	}
}
