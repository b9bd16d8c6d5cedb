// Package session runs measurements from their options to their results. [Driver]
// prepares a job, launches the command and returns the exit code. [Run] measures a
// subject and gives the profile of each window to a [Sink]; [Stream] writes each sample
// as it is taken. The package defines no flags: messages contain a usage.Option instead.
//
// Read driver.go first, then session.go, run.go and sample.go.
//
// # The life of a run
//
// All of this happens in the goroutine that called [Run], unless another is named.
//
//  1. Prepare (job.Prepare): checks the options, the privileges and the target, chooses the
//     event, and opens the output. Then the [Driver] launches the command, which stops before
//     its first instruction.
//  2. Load and attach (newRun): opens the tracker, which follows mappings, then loads the BPF
//     programs and attaches them. The gate is still shut: programs run, but count nothing.
//     job.connect adds the pipeline: windows, or streaming.
//  3. Enable (run.measure, run.sample): starts the writer, a second goroutine, which does the
//     work in the queue. Then the loop calls run.Enable, which opens the gate, and releases
//     the command.
//  4. Poll (run.Poll), until the time is over, the target has ended, a source has enough, or
//     the user interrupts: run.read drains the sideband and the rings into the store.
//     pipeline.polled passes on what is complete.
//  5. Cut (windows.cut), in a poll at the end of a window: splits the waits in progress, reads
//     the rest of the window, puts it into the queue, and gives the run a new store.
//  6. Finish (run.sample, pipeline.finish): shuts the gate, detaches the programs, reads what
//     is left and puts it into the queue. Then the first goroutine waits for the writer.
//  7. Write (windows.writeWindow, streaming.writeBatch), in the writer, also during 4 to 6: looks
//     up names and passes the profile to the [Sink], or samples to the output.
//  8. Conclude (pipeline.conclude): prints the summary.
//  9. Close (run.close, then job.Close): closes the pipeline and the programs, and discards an
//     incomplete output.
//
// Each datum has one owner at a time. Only the process table's files, the unwind tables and the
// trackers of containers are shared, and lock themselves.
//   - The store, the sources, the tracker and the open window belong to the first goroutine. A
//     closed window and its store belong to the writer once they are in the queue.
//   - The totals and the warnings belong to the writer. When it has ended, conclude reads them.
//   - queue.items passes work to the writer. A put blocks while the queue is full, so the
//     pipelines look at queue.waiting first, the amount of work that is not done: a window then
//     lasts longer, and streaming drops samples.
//   - queue.failure passes the writer's error to the next poll, which ends the measurement.
//   - run.sampled is closed at the end of sampling. From then on, the writer shows what it waits
//     for, and the user's next interrupt ends its waits (run.untilInterrupt).
package session
