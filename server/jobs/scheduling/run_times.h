// How long a job will run, from its cost and the speed of those before it.
#ifndef SPARSEFW_SERVER_JOBS_SCHEDULING_RUN_TIMES_H_
#define SPARSEFW_SERVER_JOBS_SCHEDULING_RUN_TIMES_H_

namespace sparsefw::server {

// Not thread-safe. Seconds = cost · s, where s, seconds per operation, is kept for the
// CPU and for devices apart: a guess at first, then the moving average
//   s <- s + (seconds / cost - s) / 8
// of the runs that nobody stopped. Costs are rough, so this is good to a factor of a
// few between jobs of different kinds. Fair shares need no more: what a run has really
// taken replaces the estimate.
class RunTimes {
 public:
  // In [0, kMostSeconds]: what a run takes beyond that is accounted for while it runs.
  static constexpr double kMostSeconds = 60;
  double Estimate(double cost, bool on_device) const;
  void Measured(double cost, bool on_device, double seconds);

 private:
  double cpu_ = 1e-10;  // 10 Gflop/s
  double device_ = 1e-12;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_SCHEDULING_RUN_TIMES_H_
