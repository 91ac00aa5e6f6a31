//! Reading single jobs back for answers: requests that come together share one read.

use tokio::sync::{mpsc, oneshot};
use windlass_core::JobId;
use windlass_core::store::JobDetail;
use windlass_runtime_tokio::{ReadError, Reads};

/// Maximum number of jobs per read.
const MOST: usize = 256;

type Found = Result<Option<JobDetail>, ReadError>;

/// Where single jobs are looked up.
#[derive(Debug, Clone)]
pub(crate) struct Lookup(mpsc::Sender<(JobId, oneshot::Sender<Found>)>);

impl Lookup {
    /// Starts the task that reads. It ends when the last handle is dropped.
    pub(crate) fn start(reads: Reads) -> Self {
        let (sender, receiver) = mpsc::channel(MOST);
        tokio::spawn(read(reads, receiver));
        Self(sender)
    }

    /// The job with everything kept beside it.
    pub(crate) async fn job(&self, id: JobId) -> Found {
        let (answer, waiting) = oneshot::channel();
        self.0.send((id, answer)).await.map_err(|_| ReadError::Stopped)?;
        waiting.await.map_err(|_| ReadError::Stopped)?
    }
}

async fn read(reads: Reads, mut asked: mpsc::Receiver<(JobId, oneshot::Sender<Found>)>) {
    let mut waiting = Vec::with_capacity(MOST);
    while asked.recv_many(&mut waiting, MOST).await > 0 {
        let ids: Vec<JobId> = waiting.iter().map(|(id, _)| *id).collect();
        let found = reads.read(move |reader| reader.jobs(&ids)).await;
        match found {
            Ok(found) => {
                for ((_, answer), job) in waiting.drain(..).zip(found) {
                    // The caller may have been dropped.
                    let _ = answer.send(Ok(job));
                }
            }
            Err(error) => {
                for (_, answer) in waiting.drain(..) {
                    let _ = answer.send(Err(error.clone()));
                }
            }
        }
    }
}
