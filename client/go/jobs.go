package sparsefw

import (
	"context"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// CreateJob queues a job. With WithRequestID the same call gives the same job, also from a later process;
// a call that is repeated inside of this one never makes two.
func (c *Client) CreateJob(ctx context.Context, spec *v1.JobSpec, opts ...CallOption) (*v1.Job, error) {
	request := &v1.CreateJobRequest{
		Spec: spec, RequestId: collect(opts).id(), Owner: c.options.owner,
	}
	return c.job(ctx, "CreateJob", func(ctx context.Context) (*v1.Job, error) {
		return c.jobs().CreateJob(ctx, request)
	})
}

// CheckJob says whether CreateJob would accept the spec, whose tensors must be on the server.
func (c *Client) CheckJob(ctx context.Context, spec *v1.JobSpec) error {
	_, err := c.job(ctx, "CreateJob", func(ctx context.Context) (*v1.Job, error) {
		return c.jobs().CreateJob(ctx, &v1.CreateJobRequest{Spec: spec, ValidateOnly: true})
	})
	return err
}

// CheckJobOptions says so as far as can be known before the tensors are there; the request describes
// them.
func (c *Client) CheckJobOptions(ctx context.Context, request *v1.CheckJobOptionsRequest) error {
	return c.call(ctx, "CheckJobOptions", func(ctx context.Context) error {
		_, err := c.jobs().CheckJobOptions(ctx, request)
		return err
	})
}

// GetJob is the job as it is now.
func (c *Client) GetJob(ctx context.Context, name string) (*v1.Job, error) {
	return c.job(ctx, "GetJob", func(ctx context.Context) (*v1.Job, error) {
		return c.jobs().GetJob(ctx, &v1.GetJobRequest{Name: name})
	})
}

// CancelJob ends a queued job, and a running one soon, which keeps its best mask. It changes nothing about a job
// that has ended.
func (c *Client) CancelJob(ctx context.Context, name string) (*v1.Job, error) {
	return c.job(ctx, "CancelJob", func(ctx context.Context) (*v1.Job, error) {
		return c.jobs().CancelJob(ctx, &v1.CancelJobRequest{Name: name})
	})
}

// DeleteJob removes a job that has ended, with its mask and pruned weight.
func (c *Client) DeleteJob(ctx context.Context, name string) error {
	return c.remove(ctx, "DeleteJob", func(ctx context.Context) error {
		_, err := c.jobs().DeleteJob(ctx, &v1.DeleteJobRequest{Name: name})
		return err
	})
}

// JobFilter chooses jobs; its zero value all.
type JobFilter struct {
	States []v1.JobState     // none: all
	Labels map[string]string // every one must match
	Limit  int               // 0: no limit
}

// ListJobs is newest first.
func (c *Client) ListJobs(ctx context.Context, filter JobFilter) ([]*v1.Job, error) {
	return allPages(ctx, c, "ListJobs", filter.Limit, (*v1.ListJobsResponse).GetJobs,
		func(ctx context.Context, size int32, token string) (*v1.ListJobsResponse, error) {
			return c.jobs().ListJobs(ctx, &v1.ListJobsRequest{
				PageSize: size, PageToken: token, States: filter.States, Labels: filter.Labels})
		})
}

// ServerInfo is the server's version, devices, limits and settings.
func (c *Client) ServerInfo(ctx context.Context) (*v1.ServerInfo, error) {
	var info *v1.ServerInfo
	err := c.call(ctx, "GetServerInfo", func(ctx context.Context) (err error) {
		info, err = c.jobs().GetServerInfo(ctx, &v1.GetServerInfoRequest{})
		return err
	})
	return info, err
}

// Ended says whether the state is a last one.
func Ended(state v1.JobState) bool {
	return state == v1.JobState_JOB_STATE_SUCCEEDED || state == v1.JobState_JOB_STATE_FAILED || state == v1.JobState_JOB_STATE_CANCELLED
}

func (c *Client) job(ctx context.Context, method string,
	once func(context.Context) (*v1.Job, error)) (*v1.Job, error) {
	var job *v1.Job
	err := c.call(ctx, method, func(ctx context.Context) (err error) {
		job, err = once(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return job, nil
}
