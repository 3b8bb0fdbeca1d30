// Package geofiles reads the files of an atlas and replaces the atlas when they change.
//
// OpenAtlas reads once. LiveAtlas holds the atlas in force: Reload and WatchFiles replace it, and an invalid file leaves
// the present one in force.
package geofiles
