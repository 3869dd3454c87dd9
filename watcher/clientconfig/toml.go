package clientconfig

import "errors"

func parseTOML(data []byte) (*node, error) { return nil, errors.New("TOML is read by the next commit") }
func parseYAML(data []byte) (*node, error) { return nil, errors.New("YAML is read by the next commit") }
