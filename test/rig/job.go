package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// machine is a machine that runs tests under a kernel.
type machine struct {
	kernel
	queue  *queue
	number int // from 1, among the machines of its job
}

// suffix tells the machines of a job apart. The first one has none.
func (m machine) suffix() string {
	if m.number == 1 {
		return ""
	}
	return fmt.Sprintf("-%d", m.number)
}

// path returns the path, in the folder dir, of the machine's file with an ending.
func (m machine) path(dir, ending string) string {
	return filepath.Join(dir, m.release+m.suffix()+ending)
}

// removeOld removes the files in the folder dir of further machines with kernel k, which
// an earlier run may have left: this run may have fewer machines.
func removeOld(dir string, k kernel) error {
	for n := 2; ; n++ {
		m := machine{kernel: k, number: n}
		err := os.Remove(m.path(dir, ".log"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err := errors.Join(err, os.RemoveAll(m.path(dir, ".console")), os.RemoveAll(m.path(dir, ""))); err != nil {
			return err
		}
	}
}

// job is the tests under one kernel. Several machines may share them.
type job struct {
	kernel
	queue *queue

	machines int       // that were started
	running  int       // machines that have not ended
	started  time.Time // when the first machine was
	broken   bool      // a machine did not reach its end
	report   report    // of the machines that have ended
	err      error     // of these, too
}

func newJob(k kernel, q *queue) *job {
	return &job{kernel: k, queue: q, report: report{done: true}}
}

// runJobs runs all jobs, in up to slots machines at a time. The function boot runs tests
// of a machine's queue in it.
func runJobs(jobs []*job, slots int, boot func(machine) (*report, error)) {
	type result struct {
		job    *job
		report *report
		err    error
	}
	results := make(chan result)
	for running := 0; ; {
		for running < slots {
			j := nextJob(jobs)
			if j == nil {
				break
			}
			m := j.start()
			running++
			go func() {
				r, err := boot(m)
				results <- result{j, r, err}
			}()
		}
		if running == 0 {
			return
		}
		r := <-results
		running--
		r.job.ended(r.report, r.err)
	}
}

// nextJob returns the job to boot a machine for: the first one without any, otherwise the
// one with the most packages left, or nil. A job gets no more machines when one of them did
// not reach its end, or when all have ended: the next one might fare no better.
func nextJob(jobs []*job) *job {
	var next *job
	most := 0
	for _, j := range jobs {
		if j.machines == 0 {
			return j
		}
		// Each machine takes another package before the new one is up.
		left := len(j.queue.packages())
		if j.running > 0 && !j.broken && left > j.running && left > most {
			next, most = j, left
		}
	}
	return next
}

// start returns the job's next machine.
func (j *job) start() machine {
	if j.machines == 0 {
		j.started = time.Now()
	}
	j.machines++
	j.running++
	return machine{j.kernel, j.queue, j.machines}
}

// ended adds the results of a machine. Its report may be nil if there is an error.
func (j *job) ended(r *report, err error) {
	j.running--
	j.broken = j.broken || err != nil || !r.done
	if r != nil {
		j.report.add(r)
	}
	if err != nil {
		j.err = errors.Join(j.err, err)
		j.report.done = false
	}
	j.report.elapsed = time.Since(j.started)
	if left := j.queue.packages(); j.running == 0 && len(left) > 0 {
		j.report.problem("not run: %s", strings.Join(left, ", "))
	}
}
