"""What a training plan costs on devices that exist: one iteration's time, memory and where both
go."""
