package sparsefw_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	sparsefw "github.com/sparsefw/sparsefw/client/go"
	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

func TestATokenThatNoHeaderHoldsIsRefusedUnseen(t *testing.T) {
	const words = "a token must have printable ASCII characters only, and no space; got one of"
	for _, token := range []string{"secret ", " secret", "sec ret", "secret\n", "secret\r\nx: y", "sec\x00ret", "secret\x7f", "secrät", "secret\xff"} {
		_, err := sparsefw.Dial(ctx, "127.0.0.1:1", sparsefw.WithToken(token))
		if sparsefw.ReasonOf(err) != "CLIENT_ARGUMENT" || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v", token, err)
		} else if strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "sec") {
			t.Errorf("%q is shown: %v", token, err)
		}
	}
}

func TestARetryPolicyThatWouldNotWaitIsRefused(t *testing.T) {
	for _, multiplier := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0.5, -1} {
		policy := sparsefw.DefaultRetry
		policy.Multiplier = multiplier
		if _, err := sparsefw.Dial(ctx, "127.0.0.1:1", sparsefw.WithRetry(policy)); sparsefw.ReasonOf(err) != "CLIENT_ARGUMENT" {
			t.Errorf("%v: %v", multiplier, err)
		}
	}
}

func TestATokenMustFitAMessage(t *testing.T) {
	client := dial(t, startFake(t, &fakeServer{}))
	for _, width := range []int64{sparsefw.MaxChunkBytes/4 + 1, 1 << 62} { // the latter overflows in bytes
		spec := &v1.GramSpec{DIn: width, ActivationDtype: v1.DataType_DATA_TYPE_F32}
		if _, err := client.GramReader(ctx, spec, strings.NewReader("")); sparsefw.ReasonOf(err) != "CLIENT_ARGUMENT" ||
			!strings.Contains(err.Error(), "one token to a message") {
			t.Errorf("%d: %v", width, err)
		}
	}
}

func TestAJobThatRunsHasNoResultYet(t *testing.T) {
	client := dial(t, startFake(t, &fakeServer{}))
	_, err := client.Result(ctx, &v1.Job{Name: "jobs/1", State: v1.JobState_JOB_STATE_RUNNING})
	if sparsefw.ReasonOf(err) != "CLIENT_ARGUMENT" || !strings.Contains(err.Error(), "jobs/1 must have ended; it is RUNNING") {
		t.Error(err)
	}
}

func TestATraceparentOfAnotherFormIsRefused(t *testing.T) {
	const good = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	for _, bad := range []string{
		"x", good + "0", good[:54], strings.ToUpper(good), "01" + good[2:], strings.Replace(good, "-0123", "_0123", 1),
		"00-00000000000000000000000000000000-0123456789abcdef-01", "00-0123456789abcdef0123456789abcdef-0000000000000000-01",
		good[:53] + "0g", good[:54] + "\n",
	} {
		_, err := sparsefw.Dial(ctx, "127.0.0.1:1", sparsefw.WithTraceparent(bad))
		if sparsefw.ReasonOf(err) != "CLIENT_ARGUMENT" ||
			!strings.Contains(err.Error(), "traceparent must be 00-<32 hex>-<16 hex>-<2 hex> in lower case; got ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// headers keeps those of a call.
type headers struct {
	fakeServer
	metadata metadata.MD
}

func (h *headers) GetServerInfo(ctx context.Context, _ *v1.GetServerInfoRequest) (*v1.ServerInfo, error) {
	h.metadata, _ = metadata.FromIncomingContext(ctx)
	return &v1.ServerInfo{}, nil
}

func TestTokenAndTraceparentGoWithEveryCall(t *testing.T) {
	const trace, token = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "!a~B0"
	server := &headers{}
	address := startFake(t, server)
	client := dial(t, address, sparsefw.WithToken(token), sparsefw.WithTraceparent(trace))
	_, err := client.ServerInfo(ctx)
	must(t, err)
	if got := server.metadata.Get("traceparent"); len(got) != 1 || got[0] != trace {
		t.Errorf("%q", got)
	}
	if got := server.metadata.Get("authorization"); len(got) != 1 || got[0] != "Bearer "+token {
		t.Errorf("%q", got)
	}
	// Without one, a new one of the same form.
	_, err = dial(t, address, sparsefw.WithTraceparent("")).ServerInfo(ctx)
	must(t, err)
	made := server.metadata.Get("traceparent")
	if len(made) != 1 {
		t.Fatalf("%q", made)
	}
	dial(t, address, sparsefw.WithTraceparent(made[0]))
}
