package main

import (
	"errors"
	"log/slog"
)

func (p *process) serve(cfg *Config, password string, log *slog.Logger) int {
	return p.fail(exitFailure, errors.New("the server is not wired yet"))
}
