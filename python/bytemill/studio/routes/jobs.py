"""The route of jobs that wait."""

from __future__ import annotations

from fastapi import APIRouter

from bytemill.studio.schemas import Queued
from bytemill.studio.state import Studio

router = APIRouter(tags=["jobs"])


@router.get("/jobs/{name}")
async def job(name: str, studio: Studio) -> Queued:
    """Return how many jobs wait before the one whose request had this name in its header x-job."""
    return Queued(before=studio.jobs.before(name))
