package experiment

func (s seedFigure) toCached() cachedFigure {
	return cachedFigure{s.value, s.missing, s.atLeast, s.below}
}

func (s cachedFigure) toFigure() seedFigure {
	return seedFigure{s.Value, s.Missing, s.AtLeast, s.Below}
}
