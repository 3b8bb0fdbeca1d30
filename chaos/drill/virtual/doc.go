// Package virtual runs a drill in the simulator (chaos/sim): the same file, the same log and the same judgement as a run on
// a fleet of processes, in seconds, and the same to the last byte for a seed.
//
// Steps become faults of the simulator; what it represents otherwise than the file states is a note in the log's header,
// and a step that it cannot carry is an error. Nothing is probed after clearing, because the simulator is the place that
// was injured: a step is verified by its fault being out of force.
package virtual
