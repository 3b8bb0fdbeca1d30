// Package archive keeps runs of drills in a folder: each run's log, reports and controller, an index, and the safety lever.
//
//	DIR/runs.jsonl            one line a run: id, drill, outcome, chain value
//	DIR/ID/log.jsonl          its log, with a hash in each line (drill.EventLog)
//	DIR/ID/predicted.jsonl    the simulator's log of the same file, for live runs
//	DIR/ID/report.json, .md, .html
//	DIR/ID/abort              the reason, while an operator wants this run to end
//	DIR/stop-all              the reason, while no run may start and every run has to end
//
// The log of a run names the chain value of the run before it, so that a run that is changed or removed is found.
package archive
