package load

import _ "embed" // the source whose comments explain the keys

//go:embed workload.go
var workloadSource string

// WorkloadSource is the Go source whose comments explain the keys of a Workload.
func WorkloadSource() string { return workloadSource }
