// Command grafana writes the Grafana dashboards of Spillway, one JSON file each, from dashboards.yaml. Its test
// compares the files with the source; TestDashboardsUseRegisteredMetrics in cmd/spillway checks the queries.
package main
