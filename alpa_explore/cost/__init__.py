"""What things take: collectives, resharding, compute, memory."""
