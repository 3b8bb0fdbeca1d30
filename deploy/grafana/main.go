package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml"
)

// sourceFile describes the dashboards.
const sourceFile = "dashboards.yaml"

// dashboard is one dashboard of the source file.
type dashboard struct {
	Name, Title, Description string
	Variables                []variable
	Panels                   []panel
}

// variable is a selector at the top of a dashboard; its values come from a query.
type variable struct{ Name, Label, Query string }

// panel is one chart. View is timeseries (the default), stat or table; Width is in Grafana's columns, 24 a row.
type panel struct {
	Title, Description, Unit, View string
	Width                          int
	Queries                        []query
}

type query struct{ Expr, Legend string }

func main() {
	dir := "deploy/grafana"
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := writeDashboards(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// writeDashboards writes the JSON file of each dashboard of the source file in dir.
func writeDashboards(dir string) error {
	all, err := readDashboards(dir)
	if err != nil {
		return err
	}
	for i := range all {
		text, err := renderDashboard(&all[i])
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, all[i].Name+".json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// readDashboards reads the source file; a key that it does not know is an error.
func readDashboards(dir string) ([]dashboard, error) {
	text, err := os.ReadFile(filepath.Join(dir, sourceFile))
	if err != nil {
		return nil, err
	}
	var all []dashboard
	if err := yaml.UnmarshalWithOptions(text, &all, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("%s: %w", sourceFile, err)
	}
	return all, nil
}

// object is a JSON object; encoding/json writes its keys in order.
type object map[string]any

// Layout in Grafana's grid: 24 columns; heights in its rows.
const (
	gridColumns   = 24
	defaultWidth  = 8
	chartHeight   = 8
	statHeight    = 4
	schemaVersion = 39 // of Grafana 11; later releases migrate it
)

// renderDashboard returns Grafana's JSON of a dashboard. The data source is a variable, so that no file names one, and the uid is
// fixed, so that an import replaces an earlier version.
func renderDashboard(d *dashboard) ([]byte, error) {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	variables := []any{object{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}}
	for _, v := range d.Variables {
		variables = append(variables, object{
			"name": v.Name, "label": v.Label, "type": "query", "datasource": source, "definition": v.Query,
			"query": object{"query": v.Query, "refId": "variable"}, "refresh": 2, "multi": true, "includeAll": true, "allValue": ".*",
			"current": object{"text": "All", "value": "$__all"},
		})
	}
	panels, x, y, rowHeight := []any{}, 0, 0, 0
	for i := range d.Panels {
		p := &d.Panels[i]
		width, height := p.size()
		if x+width > gridColumns {
			x, y, rowHeight = 0, y+rowHeight, 0
		}
		panels = append(panels, renderPanel(p, i+1, object{"x": x, "y": y, "w": width, "h": height}, source))
		x, rowHeight = x+width, max(rowHeight, height)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(object{
		"uid": "spillway-" + d.Name, "title": d.Title, "description": d.Description, "tags": []string{"spillway"},
		"schemaVersion": schemaVersion, "editable": true, "refresh": "30s", "time": object{"from": "now-1h", "to": "now"}, "timezone": "",
		"templating": object{"list": variables}, "panels": panels,
		"links": []any{object{"title": "Spillway", "type": "dashboards", "tags": []string{"spillway"}, "asDropdown": true, "keepTime": true}},
	})
	return out.Bytes(), err
}

func (p *panel) size() (width, height int) {
	width, height = p.Width, chartHeight
	if width == 0 {
		width = defaultWidth
	}
	if p.View == "stat" {
		height = statHeight
	}
	return width, height
}

func renderPanel(p *panel, id int, position, source object) object {
	view := p.View
	if view == "" {
		view = "timeseries"
	}
	unit := p.Unit
	if unit == "" {
		unit = "short"
	}
	targets := []any{}
	for i, q := range p.Queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "expr": q.Expr, "legendFormat": q.Legend, "datasource": source,
			"instant": view != "timeseries", "range": view == "timeseries",
		})
	}
	options := object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	if view == "stat" {
		options = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "textMode": "value", "graphMode": "none"}
	}
	return object{
		"id": id, "type": view, "title": p.Title, "description": p.Description, "gridPos": position, "datasource": source,
		"targets": targets, "options": options, "fieldConfig": object{"defaults": object{"unit": unit}, "overrides": []any{}},
	}
}
